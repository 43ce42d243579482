"""Runs an image as Kubernetes' restricted pods are run, by `runc` alone."""

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4


def config_of(image: str) -> dict[str, Any]:
    """What the image says about how it is run."""
    done = subprocess.run(["buildah", "inspect", "--type", "image", image], check=True, capture_output=True, text=True)
    shown = json.loads(done.stdout)
    config: dict[str, Any] = shown["OCIv1"]["config"]
    # OCI's own format has no such thing.
    return config | {"Healthcheck": shown["Docker"]["config"].get("Healthcheck")}


@contextlib.contextmanager
def root_of(image: str) -> Iterator[Path]:
    """The folder with the image's files."""
    made = _buildah("from", "--pull-never", image)
    try:
        yield Path(_buildah("mount", made))
    finally:
        _buildah("rm", made)


@dataclass(frozen=True, slots=True)
class Container:
    """A container of an image whose files are in `root`, and what it is given.

    The root file system is read-only, the process has no rights and can get none, and writes to the folders `writable`
    alone, which are paths in the container and where they are. It keeps this machine's network and limits.
    """

    root: Path
    config: Mapping[str, Any]
    arguments: Sequence[str]
    writable: Mapping[str, Path]
    environment: Mapping[str, str] = field(default_factory=dict)

    def spec(self, made: dict[str, Any], hosts: Path) -> dict[str, Any]:
        """What `runc` is to do, from what it would do by itself. `hosts` has the names that it knows."""
        uid = int(self.config["User"])
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        process = made["process"] | {
            "terminal": False,
            "user": {"uid": uid, "gid": uid},
            "noNewPrivileges": True,
            "cwd": self.config["WorkingDir"],
            "args": [*self.config["Entrypoint"], *self.arguments],
            "env": [*self.config["Env"], *variables],
            "capabilities": {name: [] for name in made["process"]["capabilities"]},
        }
        del process["rlimits"]
        linux = made["linux"]
        linux["namespaces"] = [each for each in linux["namespaces"] if each["type"] not in ("network", "cgroup")]
        del linux["resources"]
        mounts = [
            {"destination": path, "type": "bind", "source": str(folder), "options": ["rbind", "rw"]}
            for path, folder in self.writable.items()
        ]
        # As every engine does.
        hosts.write_text(f"127.0.0.1 localhost {made['hostname']}\n")
        mounts.append({"destination": "/etc/hosts", "type": "bind", "source": str(hosts), "options": ["rbind", "ro"]})
        root = {"path": str(self.root), "readonly": True}
        return made | {"root": root, "process": process, "mounts": [*made["mounts"], *mounts], "linux": linux}


class Running:
    """A container that was started. Each has a name of its own."""

    def __init__(self, container: Container, folder: Path) -> None:
        self.name = f"braidmq-image-test-{uuid4().hex[:8]}"
        self._log = folder / "log"
        subprocess.run(["runc", "spec"], cwd=folder, check=True)
        spec = folder / "config.json"
        spec.write_text(json.dumps(container.spec(json.loads(spec.read_text()), folder / "hosts")))
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(["runc", "run", self.name], cwd=folder, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        """What it has printed, to either output."""
        return self._log.read_text(errors="replace")

    def inside(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in it. `stdout` has what that prints to either output."""
        return subprocess.run(
            ["runc", "exec", self.name, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def signal(self, name: str) -> None:
        """Send a signal to its first process."""
        subprocess.run(["runc", "kill", self.name, name], check=True)


@contextlib.contextmanager
def running(container: Container) -> Iterator[Running]:
    """Start the container. Leaving the context kills and removes it, and prints its log if something failed."""
    with tempfile.TemporaryDirectory(prefix="braidmq-container-") as folder:
        started = Running(container, Path(folder))
        try:
            yield started
        except BaseException:
            print(started.log, flush=True)
            raise
        finally:
            # Where runc has failed there is no container.
            subprocess.run(["runc", "delete", "--force", started.name], capture_output=True)
            started.process.wait()


def writable_folder(folder: Path) -> Path:
    """The folder, made, where every user may write."""
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def _buildah(*arguments: str) -> str:
    return subprocess.run(["buildah", *arguments], check=True, capture_output=True, text=True).stdout.strip()
