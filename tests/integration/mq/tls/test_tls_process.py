"""`mq serve` with TLS: what keeps it from starting, commands that ask it, and new certificates under load."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography import x509

from mq.cli.main import run
from tests.support.broker.broker_process import BrokerProcess
from tests.support.net.authority import DAY, Authority, Identity

SECONDS = 30.0


class Volume:
    """Files as Kubernetes mounts them: links to a folder, which is swapped as a whole."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._made = folder, 0
        folder.mkdir()
        for name in ("tls.crt", "tls.key"):
            (folder / name).symlink_to(Path("..data", name))

    def put(self, identity: Identity) -> None:
        """Swap in these."""
        self._made += 1
        version = self.folder / f"..{self._made}"
        version.mkdir()
        (version / "tls.crt").write_bytes(identity.cert.read_bytes())
        (version / "tls.key").write_bytes(identity.key.read_bytes())
        (self.folder / "..new").symlink_to(version.name)
        (self.folder / "..new").replace(self.folder / "..data")

    @property
    def arguments(self) -> list[str]:
        return ["--tls-cert", str(self.folder / "tls.crt"), "--tls-key", str(self.folder / "tls.key")]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def volume(authority: Authority, tmp_path: Path) -> Volume:
    made = Volume(tmp_path / "mounted")
    made.put(authority.sign("first"))
    return made


@pytest.fixture
def broker(authority: Authority, volume: Volume, tmp_path: Path) -> Iterator[BrokerProcess]:
    arguments = [*volume.arguments, "--tls-ca", str(authority.ca)]
    with BrokerProcess(data=tmp_path / "data", args=arguments, tls=authority.client()) as started:
        yield started


def shown_serial(broker: BrokerProcess, authority: Authority) -> str:
    """The number of the certificate that a new connection gets."""
    port = int(broker.url.rpartition(":")[2])
    pem = ssl.get_server_certificate(("127.0.0.1", port), ca_certs=str(authority.ca), timeout=SECONDS)
    return str(x509.load_pem_x509_certificate(pem.encode()).serial_number)


async def until_logged(broker: BrokerProcess, event: str) -> None:
    async with asyncio.timeout(SECONDS):
        while event not in broker.log:
            await asyncio.sleep(0.02)


def test_a_broker_with_tls(
    broker: BrokerProcess,
    authority: Authority,
    volume: Volume,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BRAIDMQ_CA", "")  # what commands set is gone at the end
    check_commands(broker, authority, capsys)
    asyncio.run(check_new_certificates(broker, authority, volume))


async def check_new_certificates(broker: BrokerProcess, authority: Authority, volume: Volume) -> None:
    """New certificates are used, broken ones are not, and no request fails meanwhile."""
    url, stop, published = f"{broker.url}/v1/topics/t", asyncio.Event(), 1
    tls = authority.client()

    async def publish(*, keeps: bool) -> None:
        nonlocal published
        limits = httpx.Limits(max_keepalive_connections=1 if keeps else 0)
        async with httpx.AsyncClient(verify=tls, limits=limits, timeout=SECONDS) as client:
            while not stop.is_set():
                (await client.post(f"{url}/messages?key=a", content=b"x")).raise_for_status()
                published += 1

    async with asyncio.TaskGroup() as group:
        for keeps in (True, False):
            group.create_task(publish(keeps=keeps))
        try:
            first = await asyncio.to_thread(shown_serial, broker, authority)
            volume.put(authority.sign("second"))
            await until_logged(broker, "tls_reloaded")
            second = await asyncio.to_thread(shown_serial, broker, authority)
            assert second != first
            volume.put(authority.sign("expired", since=-2 * DAY, until=-DAY))
            await until_logged(broker, "tls_not_reloaded")
            assert await asyncio.to_thread(shown_serial, broker, authority) == second
            assert "cannot be used: certificate has expired" in broker.log
            before = published
            async with asyncio.timeout(SECONDS):
                while published < before + 20:
                    await asyncio.sleep(0.01)
        finally:
            stop.set()
    page = httpx.get(f"{url}/messages?limit=10000", verify=tls, timeout=SECONDS).json()
    assert len(page["messages"]) == published


def check_commands(broker: BrokerProcess, authority: Authority, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands go by --ca, or say what is missing; so does the message at the start."""
    assert broker.url.startswith("https://127.0.0.1:")
    assert f"curl --cacert {authority.ca} -X PUT {broker.url}/v1/topics/demo" in broker.output
    at = ["--url", broker.url]
    assert run(["topic", "list", *at]) == 1
    assert capsys.readouterr().err == (
        f"mq: no connection to {broker.url}: its certificate is not trusted (unable to get local issuer certificate); "
        "ca, --ca or BRAIDMQ_CA names a file of certificates to trust\n"
    )
    ca = ["--ca", str(authority.ca)]
    assert [run([*command, *at, *ca]) for command in (["topic", "create", "t"], ["publish", "t", "a"])] == [0, 0]
    assert run(["doctor", *at, *ca]) == 0
    assert run(["topic", "list", "--url", broker.url.replace("https", "http")]) == 1
    assert "this port speaks TLS" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["missing", "expired"])
def test_a_broker_does_not_start_without_a_certificate_that_holds(
    kind: str, authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = authority.sign("old", since=-2 * DAY, until=-DAY)
    if kind == "missing":
        identity.cert.unlink()
    files = ["--tls-cert", str(identity.cert), "--tls-key", str(identity.key)]
    broker = BrokerProcess(data=tmp_path / "d", args=files).start(wait=False)
    assert broker.wait() == 1
    told = {"missing": "cannot be read: No such file or directory", "expired": "certificate has expired"}[kind]
    assert told in broker.log and broker.log.startswith("mq: ") and "\n" not in broker.log
