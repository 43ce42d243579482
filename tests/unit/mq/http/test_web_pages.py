"""Which requests a browser makes for somebody else's page."""

import socket
import tracemalloc

import pytest

from mq.http.routes import match_route
from mq.http.web_pages import is_local, this_machine, why_foreign, why_forwarded

NAMES = ("box", "queue.example.org")


def headers(**named: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]


@pytest.mark.parametrize("names", [NAMES, None])
@pytest.mark.parametrize(
    "sent",
    [
        {"host": "localhost:8080"},
        {"host": "127.0.0.1:8080", "user_agent": "curl/8.5.0"},
        {"host": "127.3.2.1"},
        {"host": "[::1]:8080"},
        {"host": "BOX:8080"},
        {"host": "localhost:8080", "origin": "http://localhost:8080", "sec_fetch_site": "same-origin"},
        {"host": "LOCALHOST:8080", "origin": "http://localhost:8080"},
        {"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080"},
        {"host": "[::1]:8080", "origin": "http://[::1]:8080"},
        {"host": "app.localhost", "origin": "http://app.localhost"},
        {"host": "box:8080", "origin": "http://box:8080"},
        {"host": "queue.example.org", "origin": "https://queue.example.org"},
        {"host": "localhost:8080", "sec_fetch_site": "none"},
    ],
)
def test_other_clients_and_pages_of_the_broker_itself_pass(sent: dict[str, str], names: tuple[str, ...] | None) -> None:
    assert why_foreign(headers(**sent), names) is None
    assert why_foreign(headers(**sent), names, safe=True) is None


@pytest.mark.parametrize("names", [NAMES, None])
@pytest.mark.parametrize(
    ("sent", "who"),
    [
        ({"host": "localhost:8080", "origin": "http://evil.example"}, "http://evil.example"),
        ({"host": "localhost:8080", "origin": "http://localhost:3000"}, "http://localhost:3000"),
        ({"host": "localhost:8080", "origin": "null"}, "null"),
        ({"host": "localhost:8080", "origin": "http://["}, "http://["),
        ({"host": "localhost:8080", "sec_fetch_site": "cross-site"}, "another site"),
        ({"host": "localhost:8080", "sec_fetch_site": "same-site"}, "another site"),
        ({"host": "localhost:8080", "origin": "http://localhost:8080", "sec_fetch_site": "cross-site"}, "localhost"),
        ({"origin": "http://evil.example"}, "http://evil.example"),
    ],
)
def test_pages_of_others_do_not(sent: dict[str, str], who: str, names: tuple[str, ...] | None) -> None:
    assert who in (why_foreign(headers(**sent), names) or "")
    assert who in (why_foreign(headers(**sent), NAMES, safe=True) or "")


def test_a_page_of_another_site_may_lead_its_reader_here() -> None:
    link = headers(host="localhost:8080", sec_fetch_site="cross-site", sec_fetch_mode="navigate")
    assert why_foreign(link, NAMES, safe=True) is None
    assert why_foreign(link, NAMES) is not None, "a form that is sent is a navigation too"


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("sent", [{}, {"host": ""}, {"host": "10.0.0.5:8080"}, {"host": "x" * 400}])
def test_who_says_no_name_of_ours_does_not_pass(sent: dict[str, str], safe: bool) -> None:
    assert "not one of its names" in (why_foreign(headers(**sent), NAMES, safe=safe) or "")
    assert why_foreign(headers(**sent), None, safe=safe) is None


def test_a_second_host_or_origin_does_not_hide_the_first() -> None:
    twice = [(b"host", b"evil.example"), (b"host", b"localhost")]
    assert why_foreign(twice, NAMES, safe=True) is not None
    origins = [(b"host", b"localhost"), (b"origin", b"http://evil.example"), (b"origin", b"http://localhost")]
    assert why_foreign(origins, None) is not None


@pytest.mark.parametrize("name", ["forwarded", "via", "x_real_ip", "x_forwarded_for", "x_forwarded_proto"])
def test_what_a_proxy_passes_on_is_told(name: str) -> None:
    assert why_forwarded(headers(host="localhost", **{name: "1"})) == name.replace("_", "-")
    assert why_forwarded(headers(host="localhost", user_agent="curl/8.5.0", x_request_id="1")) is None


@pytest.mark.parametrize("host", ["evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "[", ""])
def test_a_name_that_was_made_to_lead_here_is_not_one_of_ours(host: str) -> None:
    sent = headers(host=host, origin=f"http://{host}")
    assert "not one of its names" in (why_foreign(sent, NAMES) or "")
    assert why_foreign(sent, None) is None, "whoever serves the world has names that it does not know"


def test_the_names_of_a_machine() -> None:
    here = socket.gethostname().lower()
    assert this_machine("http://queue.example.org:8080", None) == (here, "queue.example.org")
    assert this_machine(None, hosts=["0.0.0.0", " Queue.lan ", "[fe80::1]"]) == (
        here,
        "0.0.0.0",
        "queue.lan",
        "fe80::1",
    )


def test_paths_are_not_kept() -> None:
    match_route("GET", "/v1/topics/short")
    tracemalloc.start()
    try:
        for number in range(1_000):
            assert match_route("GET", f"/v1/topics/{number}{'x' * 60_000}").need.action == "observe"
            assert not is_local(b"%d" % number + b"x" * 60_000, NAMES)
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


def test_each_name_is_told_once() -> None:
    told = why_foreign(headers(host="evil.example"), ("box", "127.0.0.1")) or ""
    assert "(localhost, 127.0.0.1, [::1], box)" in told
