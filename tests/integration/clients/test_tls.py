"""What a client says when TLS fails, in each way that it can."""

import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET, socket
from threading import Thread

import pytest

from braidmq import AsyncClient, Client, ConnectionBroken, NoConnection, Retry
from tests.support.net.own_certificate import write_certificate


class _Resetting(BaseHTTPRequestHandler):
    """Takes requests, and answers none: it resets their connection."""

    def do_GET(self) -> None:
        self.connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        with socket(fileno=self.connection.detach()):
            self.close_connection = True


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Clients that do not trust the certificate are no news."""


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An address that answers, with TLS by a certificate that nobody trusts or without any."""
    with _Quiet(("127.0.0.1", 0), _Resetting) as server:
        if request.param == "tls":
            write_certificate(tmp_path / "cert.pem")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tmp_path / "cert.pem")
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


CASES = [
    pytest.param(
        "tls",
        "its certificate is not trusted (self-signed certificate); ca, --ca or BRAIDMQ_CA names a file of "
        "certificates to trust",
        id="a certificate of its own",
    ),
    pytest.param("plain", "what answers there does not speak TLS: try http://", id="no TLS"),
]


@pytest.mark.parametrize(("server", "cause"), CASES, indirect=["server"])
async def test_the_cause_is_told(server: str, cause: str) -> None:
    async with AsyncClient(f"https://{server}") as client:
        with pytest.raises(NoConnection) as failure:
            await client.topic("t")
        assert str(failure.value) == f"no connection to https://{server}: {cause}"
        with pytest.raises(NoConnection) as failure:
            await client.publish("t", b"x")
    assert str(failure.value) == f"no connection to https://{server}: {cause}"


@pytest.mark.parametrize(("server", "cause"), CASES, indirect=["server"])
def test_blocking_code_and_commands_say_the_same(server: str, cause: str) -> None:
    with Client(f"https://{server}") as client, pytest.raises(NoConnection) as failure:
        client.topic("t")
    assert str(failure.value) == f"no connection to https://{server}: {cause}"
    command = [sys.executable, "-m", "mq.cli.main", "topic", "list", "--url", f"https://{server}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, f"mq: no connection to https://{server}: {cause}\n")


@pytest.mark.parametrize("server", ["tls"], indirect=True)
async def test_a_connection_that_is_reset_is_no_failure_of_tls(server: str, tmp_path: Path) -> None:
    retry = Retry(give_up_after_seconds=0)
    async with AsyncClient(f"https://{server}", ca=str(tmp_path / "cert.pem"), retry=retry) as client:
        with pytest.raises(ConnectionBroken) as failure:
            await client.topic("t")
    assert str(failure.value) == f"the answer of https://{server} was lost: Connection reset by peer"
