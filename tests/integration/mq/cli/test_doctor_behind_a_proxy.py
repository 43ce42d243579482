"""`mq doctor` through a proxy that has TLS and asks for a name and a password, with a certificate of its own."""

import base64
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import orjson
import pytest

from braidmq import AsyncClient
from braidmq.transport.tls import tls_context
from filer.clock import SystemClock
from mq.base.version import VERSION
from mq.cli.diagnosis.checks import broker_findings
from tests.support.net.own_certificate import write_certificate
from tests.support.net.threaded_server import ThreadedServer
from tests.support.process.processes import free_port

READY = {"ready": True, "status": "ok", "problems": []}
CLUSTER = {"cluster": "braidmq", "version": VERSION, "leader": None, "self": "a", "brokers": [], "damaged": []}
ANSWERS = {"/readyz": READY, "/v1/cluster": CLUSTER, "/v1/topics": {"topics": [], "next": None}}


class Proxy(BaseHTTPRequestHandler):
    """It passes on what is in `answers`, if name and password are right."""

    answers: ClassVar[dict[str, object]] = {}

    def do_GET(self) -> None:
        known = self.headers["authorization"] == "Basic " + base64.b64encode(b"ada:secret").decode()
        answer = self.answers.get(self.path.partition("?")[0]) if known else None
        body = b"" if answer is None else orjson.dumps(answer)
        self.send_response(401 if not known else 404 if answer is None else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Its address, without name and password; processes trust its certificate."""
    path = tmp_path / "cert.pem"
    write_certificate(path)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with ThreadedServer(Proxy, context) as server:
        tls_context.cache_clear()
        yield f"127.0.0.1:{server.port}"
    tls_context.cache_clear()


@pytest.mark.parametrize(
    ("passed", "result", "detail"),
    [(set(ANSWERS), "ok", "says ok"), ({"/v1/cluster", "/v1/topics"}, "failed", "is answered 404 Not Found")],
    ids=["all", "all but the probe"],
)
async def test_readiness(
    proxy: str, passed: set[str], result: str, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the certificate and the password as all commands do, and never shows the password."""
    monkeypatch.setattr(Proxy, "answers", {path: ANSWERS[path] for path in passed})
    async with AsyncClient(f"https://ada:secret@{proxy}") as client:
        findings = {each.check: each for each in await broker_findings(client, SystemClock())}
        assert repr(client) == f"AsyncClient('https://{proxy}')"
    assert (findings["readiness"].result, findings["readiness"].detail) == (result, f"https://{proxy}/readyz {detail}")
    assert not any("secret" in each.detail for each in findings.values())


async def test_the_address_that_answered_is_named_and_so_is_one_that_did_not(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Proxy, "answers", ANSWERS)
    away = f"https://127.0.0.1:{free_port()}"
    async with AsyncClient([away, f"https://ada:secret@{proxy}"]) as client:
        findings = await broker_findings(client, SystemClock())
    told = [(each.check, each.result, each.detail.partition(" in ")[0]) for each in findings[:3]]
    assert told == [
        ("broker", "warning", f"{away} gave no answer"),
        ("broker", "ok", f"https://{proxy} answers"),
        ("readiness", "ok", f"https://{proxy}/readyz says ok"),
    ]
