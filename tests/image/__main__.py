"""Build the image and try it: `make image-test`, or `python -m tests.image --help`.

It needs root, buildah, runc and, where no base is given, debootstrap; not a container engine. The base is made of
Debian's packages unless `--base` names another one, such as the Dockerfile's own where a registry can be reached.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx

from tests.image.container import bundle, config_of, inside, root_of, running
from tests.image.local_base import local_base
from tests.support.process.processes import free_port, until

ROOT = Path(__file__).parents[2]
IMAGE = "localhost/braidmq:test"
END_SECONDS = 40.0
REVISION = "0000000"


def main() -> None:
    """Exits with 1 and one line if something is missing."""
    options = _options()
    if os.geteuid() != 0:
        sys.exit("make image-test has to be run as root: it mounts the image's files and runs them as another user")
    if missing := [each for each in ("buildah", "runc", "debootstrap") if shutil.which(each) is None]:
        sys.exit(f"make image-test needs what is not there: apt-get install {' '.join(missing)}")
    _build(options.base or local_base())
    config = config_of(IMAGE)
    assert config["Labels"]["org.opencontainers.image.revision"] == REVISION
    with tempfile.TemporaryDirectory(prefix="braidmq-image-") as made, root_of(IMAGE) as root:
        folder = Path(made)
        port = free_port()
        bundle(folder, root, config, ["--port", str(port), "--authorizer", "any", "--insecure"], folder / "data")
        with running(folder) as process:
            try:
                _try(process, f"http://127.0.0.1:{port}", folder / "data")
            except BaseException:
                sys.stderr.write((folder / "log").read_text(errors="replace"))
                raise
    print("the image holds")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="the image that the Dockerfile begins with (made of Debian's packages)")
    return parser.parse_args()


def _build(base: str) -> None:
    print(f"building over {base} ...", flush=True)
    given = ["--build-arg", f"BASE={base}", "--build-arg", f"REVISION={REVISION}"]
    subprocess.run(["buildah", "bud", "--quiet", "--isolation=chroot", *given, "--tag", IMAGE, ROOT], check=True)


def _try(process: "subprocess.Popen[bytes]", url: str, data: Path) -> None:
    """It serves, as nobody in particular, writes to its data alone, and drains when it is told to end."""
    until(lambda: process.poll() is not None or _is_ready(url))
    httpx.put(f"{url}/v1/topics/t", json={}).raise_for_status()
    httpx.post(f"{url}/v1/topics/t/messages", json={"messages": [{"value": "there"}]}).raise_for_status()
    (message,) = httpx.get(f"{url}/v1/topics/t/messages").raise_for_status().json()["messages"]
    assert message["value"] == "there"
    assert list(data.glob("braid-data/topics/t/segments/*/*.parquet"))
    status = inside("cat", "/proc/1/status")
    assert "CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status and "\nUid:\t10001\t" in status, status
    assert "Read-only file system" in inside("touch", "/opt/braidmq/it")
    print("serves as user 10001, without rights, its root file system read-only", flush=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(END_SECONDS) == 0
    print("drains and ends with 0 when it is told to end", flush=True)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


main()
