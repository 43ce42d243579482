"""What the access log shows of paths: never what only its client may know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.http.middleware.access_log import MOST_PARTS, shown, words_of

WORDS = words_of(["/v1/topics/{topic}/segments/{segment}/messages", "/v1/topics/{topic}/uploads/{id}", "/readyz"])


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/topics/birds/messages", ("/v1/topics/birds/messages", "birds")),
        ("/v1/topics/birds/segments/3/messages", ("/v1/topics/birds/segments/3/messages", "birds")),
        ("/v1/topics/birds/uploads/01J.secret", ("/v1/topics/birds/uploads/*", "birds")),
        ("/v1/topics/topics/topics/x", ("/v1/topics/topics/topics/*", "topics")),
        ("/v1/topics/a b/messages", ("/v1/topics/*/messages", None)),
        ("/v1/topics", ("/v1/topics", None)),
        ("/readyz", ("/readyz", None)),
        ("/", ("/", None)),
        ("", ("/", None)),
        ("*", ("/", None)),
        ("/wp-admin/x\n", ("/*/*", None)),
        ("/v1" + "/topics" * 100, ("/v1" + "/topics" * (MOST_PARTS - 1), "topics")),
    ],
)
def test_paths_as_the_log_has_them(path: str, told: tuple[str, str | None]) -> None:
    assert shown(path, WORDS) == told


@given(st.text(max_size=300))
def test_nothing_is_shown_but_words_numbers_and_the_topic(path: str) -> None:
    told, topic = shown(path, WORDS)
    parts = told.split("/")
    assert set(parts) - {topic, ""} <= WORDS | {"*"} | {part for part in parts if part.isdecimal()}
    assert len(told) <= 200 + 20 * MOST_PARTS
