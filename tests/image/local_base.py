"""A base image of Debian's own packages, for machines that reach no registry of images."""

import os
import shutil
import subprocess
from pathlib import Path

NAME = "localhost/braidmq-base:bookworm"
MIRROR = "http://deb.debian.org/debian"
PACKAGES = "ca-certificates,python3,python3-pip,python3-venv"
_MACHINES_OWN = Path("/etc/ssl/certs/ca-certificates.crt")


def local_base() -> str:
    """The name of the image, which is made the first time: Debian 12 with its Python 3.11, as the official image has.

    It takes this machine's certificate authorities along: pip in the build goes through whatever this machine does.
    """
    if subprocess.run(["buildah", "inspect", "--type", "image", NAME], capture_output=True).returncode == 0:
        return NAME
    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "braidmq-image" / "base"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"making {NAME} in {folder}, the first time ...", flush=True)
    subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", folder, MIRROR], check=True
    )
    shutil.copy(_MACHINES_OWN, folder / _MACHINES_OWN.relative_to("/"))
    made = subprocess.run(["buildah", "from", "scratch"], check=True, capture_output=True, text=True).stdout.strip()
    try:
        subprocess.run(["buildah", "add", "--quiet", made, folder, "/"], check=True)
        subprocess.run(["buildah", "commit", "--quiet", made, NAME], check=True)
    finally:
        subprocess.run(["buildah", "rm", made], check=True, capture_output=True)
        shutil.rmtree(folder)
    return NAME
