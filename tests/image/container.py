"""Runs an image as Kubernetes' restricted pods are run, by `runc` alone."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

NAME = "braidmq-image-test"


def config_of(image: str) -> dict[str, Any]:
    """What the image says about how it is run."""
    shown = subprocess.run(
        ["buildah", "inspect", "--type", "image", image], check=True, capture_output=True, text=True
    ).stdout
    config: dict[str, Any] = json.loads(shown)["OCIv1"]["config"]
    return config


@contextlib.contextmanager
def root_of(image: str) -> Iterator[Path]:
    """The folder with the image's files."""
    made = _buildah("from", "--pull-never", image)
    try:
        yield Path(_buildah("mount", made))
    finally:
        _buildah("rm", made)


def bundle(folder: Path, root: Path, config: Mapping[str, Any], arguments: Sequence[str], data: Path) -> None:
    """Write into `folder` what `runc` is to do.

    The root file system is read-only, the process has no rights and can get none, and writes to `data` alone. It keeps
    this machine's network and limits.
    """
    subprocess.run(["runc", "spec"], cwd=folder, check=True)
    written = folder / "config.json"
    spec: dict[str, Any] = json.loads(written.read_text())
    uid = int(config["User"])
    spec["root"] = {"path": str(root), "readonly": True}
    process = spec["process"]
    process |= {
        "terminal": False,
        "user": {"uid": uid, "gid": uid},
        "noNewPrivileges": True,
        "cwd": config["WorkingDir"],
    }
    process |= {"args": [*config["Entrypoint"], *arguments], "env": config["Env"]}
    process["capabilities"] = {name: [] for name in process["capabilities"]}
    del process["rlimits"]
    data.mkdir()
    data.chmod(0o777)
    volume = {"destination": config["WorkingDir"], "type": "bind", "source": str(data), "options": ["rbind", "rw"]}
    spec["mounts"].append(volume)
    of_its_own = [each for each in spec["linux"]["namespaces"] if each["type"] not in ("network", "cgroup")]
    spec["linux"]["namespaces"] = of_its_own
    del spec["linux"]["resources"]
    written.write_text(json.dumps(spec))


@contextlib.contextmanager
def running(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The container of that bundle; leaving the context kills and removes it."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(["runc", "run", NAME], cwd=folder, stdout=log, stderr=log)
    try:
        yield process
    finally:
        subprocess.run(["runc", "delete", "--force", NAME], check=True)
        process.wait()


def inside(*command: str) -> str:
    """What a command prints in the container, to either output."""
    done = subprocess.run(["runc", "exec", NAME, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


def _buildah(*arguments: str) -> str:
    return subprocess.run(["buildah", *arguments], check=True, capture_output=True, text=True).stdout.strip()
