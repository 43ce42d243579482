"""`mq healthcheck` asks brokers as they run: in the clear, by TLS, and where clients have to show certificates."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from filer.errors import InvalidInput
from mq.cli.main import run
from mq.cli.server.healthcheck import arguments_of
from tests.support.broker.broker_process import BrokerProcess, broker_environment
from tests.support.net.authority import Authority, Identity
from tests.support.process.processes import free_port


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", broker_environment({}))


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def broker(tmp_path: Path, port: int) -> Iterator[BrokerProcess]:
    # A process of its own has a command line of its own.
    with BrokerProcess(data=tmp_path / "data", port=port, args=["--host", "0.0.0.0"], forked=False) as broker:
        yield broker


def test_it_asks_a_broker_with_the_same_options(
    broker: BrokerProcess, port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    of_process = ["healthcheck", "--pid", str(broker.process.pid)]
    assert run(["healthcheck", "--port", str(port)]) == 0
    assert run(of_process) == 0
    assert capfd.readouterr().out == f"http://127.0.0.1:{port}/livez answers\n" * 2
    assert run([*of_process, "--quiet"]) == 0
    assert capfd.readouterr().out == ""
    broker.stop()
    assert run([*of_process, "--timeout", "200ms"]) == 1
    assert capfd.readouterr().err == f"mq: http://127.0.0.1:{port}/livez does not answer within 0.2 s\n"
    broker.cont()
    assert run([*of_process, "--timeout", "30s"]) == 0
    broker.kill()
    assert run(["healthcheck", "--port", str(port)]) == 1
    assert capfd.readouterr().err == f"mq: http://127.0.0.1:{port}/livez does not answer: Connection refused\n"


@pytest.mark.parametrize("clients", ["anybody", "those that the brokers' CA has signed", "those of another CA"])
def test_a_broker_behind_tls(
    tmp_path: Path, port: int, clients: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    # Names in it are not looked at.
    cert, key = authority.sign("broker", "queue.example.org")
    args = ["--tls-cert", str(cert), "--tls-key", str(key)]
    shown = authority.sign("client")
    if clients != "anybody":
        trusted = authority if clients.startswith("those that") else other
        args += ["--tls-client-ca", str(trusted.ca)]
        shown = trusted.sign("client")
    tls = _trusting(authority, shown)
    with BrokerProcess(data=tmp_path / "data", port=port, args=args, tls=tls) as broker:
        for name, value in (("TLS_CERT", cert), ("TLS_KEY", key), ("PORT", port)):
            monkeypatch.setenv(f"BRAIDMQ_{name}", str(value))
        if clients != "anybody":
            monkeypatch.setenv("BRAIDMQ_TLS_CLIENT_CA", str(trusted.ca))
        assert run(["healthcheck"]) == 0
        assert capfd.readouterr().out == f"https://127.0.0.1:{port}/livez answers\n"
        broker.stop()
        assert run(["healthcheck", "--timeout", "200ms"]) == 1


def _trusting(authority: Authority, shown: Identity) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca)
    context.check_hostname = False
    context.load_cert_chain(*shown)
    return context


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--port", "0"], "--port 0 is any free port: give the broker a port to be asked at"),
        (["--port", "many"], "--port: it must be a whole number, not 'many'"),
        (["--pid", "0"], "--pid: /proc/0/cmdline cannot be read: No such file or directory"),
        (["--timeout", "soon"], "'soon'"),
    ],
)
def test_what_cannot_be_asked_is_refused(given: list[str], words: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["healthcheck", *given]) in (1, 2)
    assert words in capfd.readouterr().err


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("mq serve", []),
        ("/opt/braidmq/bin/python3 /opt/braidmq/bin/mq serve --port 9000", ["--port", "9000"]),
        ("/sbin/docker-init -- mq serve --tls-cert /a.pem", ["--tls-cert", "/a.pem"]),
    ],
)
def test_options_of_a_process_are_found_behind_what_starts_it(tmp_path: Path, line: str, arguments: list[str]) -> None:
    (tmp_path / "cmdline").write_bytes(b"".join(f"{word}\0".encode() for word in line.split()))
    assert arguments_of(tmp_path / "cmdline") == arguments


def test_a_process_that_is_no_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cmdline").write_bytes(b"sleep\0008\0")
    with pytest.raises(InvalidInput, match="that process runs 'sleep 8', which is not mq serve"):
        arguments_of(tmp_path / "cmdline")
