"""Run the chart on a real node: `make kube-node`, or `python -m tests.kube.node [OPTIONS OF PYTEST]`.

It needs root, Go, and programs of Debian's packages. Everything runs in namespaces of its own, so that nothing outlives
it. `--transcript FILE` writes what the tests saw.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kube.building.build import built
from tests.kube.node.images import build_images, save_images

NEEDED = {
    "buildah": "buildah",
    "containerd": "containerd",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "nft": "nftables",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
"""Programs, and Debian's packages of them."""
_APART = ("--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--propagation", "private")


def main() -> None:
    """Exits with what pytest exits with, or with 1 and one line if something is missing."""
    if os.geteuid() != 0:
        sys.exit("make kube-node has to be run as root: it makes namespaces and runs containers")
    if missing := [package for program, package in NEEDED.items() if shutil.which(program) is None]:
        sys.exit(f"make kube-node needs what is not there: apt-get install {' '.join(missing)}")
    programs = [built(each) for each in ("kubeall", "kubenode", "coredns")]
    build_images()
    with tempfile.TemporaryDirectory(prefix="braidmq-kube-node-") as made, _no_groups_left():
        folder = Path(made)
        (folder / "images").mkdir()
        save_images(folder / "images")
        command = [sys.executable, "-m", "tests.kube.node.inside", folder, *programs, *sys.argv[1:]]
        code = subprocess.run(["unshare", *_APART, "--", *command]).returncode
    sys.exit(code)


@contextmanager
def _no_groups_left() -> Iterator[None]:
    """Remove the control groups of the pods, whose processes are gone with their namespace."""
    try:
        yield
    finally:
        for each in sorted(Path("/sys/fs/cgroup").glob("**/kubepods/**/"), reverse=True):
            each.rmdir()


if __name__ == "__main__":
    main()
