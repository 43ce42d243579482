"""The Python clients of peers, in a folder of their own: the product does not depend on them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.harness.running import show_progress
from bench.harness.server_process import BenchFailed
from bench.peers.versions import FOLDER, versions


def python_packages() -> Path:
    """A folder for Python's path. They are installed if they are not there; raises `BenchFailed` if that fails."""
    wanted: list[str] = versions()["python"]["packages"]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = FOLDER / f"python-{python}-{'-'.join(each.replace('==', '-') for each in wanted)}"
    if folder.exists():
        return folder
    show_progress(f"installing {', '.join(wanted)}: once")
    unfinished = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(unfinished), *wanted]
    if subprocess.run(command).returncode:
        raise BenchFailed("the Python clients of the peers could not be installed, as told above")
    unfinished.rename(folder)
    return folder


def with_packages(folder: Path) -> dict[str, str]:
    """The environment of a program that uses them."""
    return {"PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep)}
