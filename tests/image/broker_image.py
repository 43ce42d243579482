"""The image of brokers: it serves as nobody in particular, tells whether it is alive, and drains when told to end."""

import signal
from pathlib import Path

import httpx

from tests.image.container import Container, Running, config_of, root_of, running, writable_folder
from tests.image.software_list import check_software_list
from tests.support.net.authority import Authority
from tests.support.process.processes import free_port, until

DATA = "/var/lib/braidmq"
OPEN = ("--authorizer", "any", "--insecure")
_END_SECONDS = 60.0
_START_SECONDS = 120.0


def try_broker_image(image: str, folder: Path) -> None:
    """Raises `AssertionError` if something does not hold."""
    config = config_of(image)
    with root_of(image) as root:
        print(f"the SBOM lists the {check_software_list(root)} packages that are there", flush=True)
        _serves(Container(root, config, [*OPEN, "--port", str(port := free_port())], _data(folder / "plain")), port)
        _tells_whether_it_is_alive(root, config, folder)


def until_ready(broker: Running, url: str, *, ca: bool | str = True) -> None:
    """Wait until the broker takes requests. Raises `AssertionError` if it ends instead."""
    until(lambda: broker.process.poll() is not None or _is_ready(url, ca), timeout_seconds=_START_SECONDS)
    assert broker.process.poll() is None, "it has ended"


def _serves(container: Container, port: int) -> None:
    url, data = f"http://127.0.0.1:{port}", container.writable[DATA]
    with running(container) as broker:
        until_ready(broker, url)
        httpx.put(f"{url}/v1/topics/t", json={}).raise_for_status()
        httpx.post(f"{url}/v1/topics/t/messages", json={"messages": [{"value": "there"}]}).raise_for_status()
        (message,) = httpx.get(f"{url}/v1/topics/t/messages").raise_for_status().json()["messages"]
        assert message["value"] == "there"
        assert list(data.glob("braid-data/topics/t/segments/*/*.parquet"))
        check_rights(broker)
        broker.process.send_signal(signal.SIGTERM)
        assert broker.process.wait(_END_SECONDS) == 0
    print("drains and ends with 0 when it is told to end", flush=True)


def check_rights(container: Running) -> None:
    """Its process is a user without any rights, and its root file system read-only."""
    status = container.inside("cat", "/proc/1/status").stdout
    assert "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status and "\nUid:\t10001\t" in status, status
    assert "Read-only file system" in container.inside("touch", "/opt/braidmq/it").stdout
    print("runs as user 10001, without rights, its root file system read-only", flush=True)


def _tells_whether_it_is_alive(root: Path, config: dict[str, object], folder: Path) -> None:
    """The image's own health check, where the port is another one, the broker speaks TLS, and it hangs."""
    test = config["Healthcheck"]
    assert isinstance(test, dict)
    kind, *command = test["Test"]
    assert kind == "CMD"
    authority = Authority(folder)
    cert, key = authority.sign("broker")
    data = _data(folder / "tls")
    for name, file in (("cert.pem", cert), ("key.pem", key)):
        (data[DATA] / name).write_bytes(file.read_bytes())
        (data[DATA] / name).chmod(0o644)
    port = free_port()
    given = ["--authorizer", "any", "--insecure", "--tls-cert", f"{DATA}/cert.pem", "--tls-key", f"{DATA}/key.pem"]
    container = Container(root, config, given, data, {"BRAIDMQ_PORT": str(port)})
    with running(container) as broker:
        until_ready(broker, f"https://127.0.0.1:{port}", ca=str(authority.ca))
        alive = broker.inside(*command)
        assert alive.returncode == 0, alive.stdout
        broker.signal("STOP")
        hangs = broker.inside(*command)
        assert hangs.returncode == 1 and "does not answer within" in hangs.stdout, hangs.stdout
        broker.signal("CONT")
        assert broker.inside(*command).returncode == 0
        broker.process.send_signal(signal.SIGTERM)
        assert broker.process.wait(_END_SECONDS) == 0
    print("its health check tells a broker that answers by TLS from one that hangs", flush=True)


def _data(folder: Path) -> dict[str, Path]:
    return {DATA: writable_folder(folder)}


def _is_ready(url: str, ca: bool | str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", verify=ca).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False
