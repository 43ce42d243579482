"""The version before this one, for tests of upgrades: its source as git has it, with a Python of its own.

`PREVIOUS_COMMIT` moves forward with each release, in the commit after it.
"""

import functools
import io
import os
import subprocess
import sysconfig
import tarfile
import tempfile
import venv
from pathlib import Path

from tests.support.process.processes import REPOSITORY

PREVIOUS_COMMIT = "655fd72"
BEFORE_EXPOSING = "dbbc4223"
"""Coordinators of queue groups that hand out whatever lies below the horizon, without a record about it."""


class PreviousVersionMissing(AssertionError):
    """This clone of the repository has not got the commit of the version before."""


@functools.cache
def previous_version(commit: str = PREVIOUS_COMMIT) -> Path:
    """A folder with its source, which goes when this process ends. Raises `PreviousVersionMissing`."""
    packed = subprocess.run(
        ["git", "-C", str(REPOSITORY), "archive", "--format=tar", commit], capture_output=True, check=False
    )
    if packed.returncode:
        raise PreviousVersionMissing(
            f"git archive {commit}: {packed.stderr.decode(errors='replace').strip()}; "
            "a shallow clone lacks it: git fetch --unshallow"
        )
    folder = _folder() / commit
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


# PYTHONPATH must not bring in this version. Nor must the current folder: run the previous version in its own.
PREVIOUS_ENVIRONMENT = {"PYTHONPATH": ""}


@functools.cache
def previous_python(commit: str = PREVIOUS_COMMIT) -> str:
    """A Python that imports the version before, and the libraries of this environment. Raises `PreviousVersionMissing`.

    The children of a broker see no PYTHONPATH, so the version is found as an installed one: by a file of paths.
    """
    root = previous_version(commit)
    home = root / ".venv"
    venv.create(home, symlinks=True)
    paths = [str(root), str(root / "clients"), sysconfig.get_path("purelib")]
    purelib = sysconfig.get_path("purelib", vars={"base": str(home)})
    (Path(purelib) / "previous.pth").write_text("\n".join(paths))
    return str(home / "bin" / "python")


def run_previous(source: str, *arguments: str) -> str:
    """What a Python script prints that imports the version before. Raises `subprocess.CalledProcessError`."""
    done = subprocess.run(
        [previous_python(), "-c", source, *arguments],
        env=os.environ | PREVIOUS_ENVIRONMENT,
        cwd=previous_version(),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


@functools.cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="braidmq-previous-")


def _folder() -> Path:
    return Path(_kept().name)
