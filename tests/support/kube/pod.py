"""Pods of the chart, run as processes of this machine: what the manifests say, as the kubelet would do it.

Each pod has an address of its own, among those of the loopback interface, so that all may have the same ports. What a
container would see at a path is a folder of the test, and such paths are replaced wherever the manifests name them.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pyspark

from tests.support.kube.chart import ROOT, Manifest
from tests.support.process.processes import end_with_us

HERE = Path(__file__).parent
EVERYWHERE = "0.0.0.0"
_ENTRY_POINT = "/docker-entrypoint.sh"
_JARS = Path(pyspark.__file__).parent / "jars" / "*"


@dataclass(frozen=True, slots=True)
class World:
    """What all pods share: a folder, the secrets and config maps by name, and the file of the cluster's names."""

    folder: Path
    objects: Mapping[tuple[str, str], Mapping[str, str]]

    @property
    def hosts(self) -> Path:
        """The names of services, as `site/sitecustomize.py` reads them."""
        return self.folder / "hosts"

    @property
    def hosts_of_java(self) -> Path:
        """The names of pods, as Java reads them."""
        return self.folder / "hosts-of-java"


class Pod:
    """One container, as `spec` has it. It begins with `start`, and ends with `stop` or `kill`."""

    def __init__(self, world: World, spec: Manifest, name: str, ip: str) -> None:
        self.name, self.ip = name, ip
        self._world, self._spec = world, spec
        (self._container,) = spec["containers"]
        self._folder = world.folder / name
        self._folder.mkdir()
        self._paths = self._mount()
        self.log = self._folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run the container's command."""
        command = self._command()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=self.environment(), cwd=self._folder, stdout=log, stderr=log, start_new_session=True
            )
        end_with_us(self.process.pid)

    def has_ended(self) -> bool:
        """Whether it was started and runs no more."""
        return self.process is not None and self.process.poll() is not None

    def is_ready(self) -> bool:
        """What its readiness probe says."""
        return (
            self.process is not None and self.process.poll() is None and self._probe(self._container["readinessProbe"])
        )

    def stop(self) -> int:
        """As the kubelet ends a pod: `preStop`, SIGTERM, and SIGKILL when the grace period is over. Its exit code."""
        assert self.process is not None
        ends_seconds = time.monotonic() + self._spec["terminationGracePeriodSeconds"]
        hook = self._container.get("lifecycle", {}).get("preStop")
        if hook is not None:
            subprocess.run(hook["exec"]["command"], env=self.environment(), check=True)
        self.process.terminate()
        try:
            return self.process.wait(ends_seconds - time.monotonic())
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def run(self) -> "subprocess.CompletedProcess[str]":
        """Run it to its end, and return what it printed."""
        command = self._command()
        return subprocess.run(command, env=self.environment(), cwd=self._folder, capture_output=True, text=True)

    def _probe(self, probe: Mapping[str, Any]) -> bool:
        if "exec" in probe:
            command = [each.replace("127.0.0.1", self.ip) for each in probe["exec"]["command"]]
            quiet = subprocess.DEVNULL
            process = subprocess.Popen(
                command, env=self.environment(), stdout=quiet, stderr=quiet, start_new_session=True
            )
            try:
                return process.wait(probe.get("timeoutSeconds", 1)) == 0
            except subprocess.TimeoutExpired:
                # As the kubelet does: ZooKeeper may take a connection and never answer.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return False
        get = probe["httpGet"]
        (port,) = (each["containerPort"] for each in self._container["ports"] if each["name"] == get["port"])
        url = f"{get['scheme'].lower()}://{self.ip}:{port}{get['path']}"
        try:
            # The kubelet does not look at the certificate.
            return httpx.get(url, verify=False, timeout=probe.get("timeoutSeconds", 1)).is_success
        except httpx.TransportError:
            return False

    def _mount(self) -> Mapping[str, Path]:
        """The folder of each path in the container. What is mounted read-only is written into it."""
        volumes = {each["name"]: each for each in self._spec["volumes"]}
        made: dict[str, Path] = {}
        for mount in self._container["volumeMounts"]:
            volume = volumes[mount["name"]]
            if "hostPath" in volume:
                # A folder of this machine is where it is.
                assert volume["hostPath"]["path"] == mount["mountPath"]
                continue
            folder = self._folder / mount["name"] / mount.get("subPath", "")
            folder.mkdir(parents=True, exist_ok=True)
            made[mount["mountPath"]] = folder
            for name, text in self._contents(volume).items():
                (folder / name).write_text(text)
        for folder in made.values():
            for file in folder.iterdir():
                if file.is_file():
                    file.write_text(_placed(file.read_text(), made))
                    # As of a secret's volume: the group of the pod may read it.
                    file.chmod(0o440)
        return made

    def _contents(self, volume: Mapping[str, Any]) -> Mapping[str, str]:
        if "configMap" in volume:
            return self._world.objects["ConfigMap", volume["configMap"]["name"]]
        if "secret" not in volume:
            return {}
        found = self._world.objects["Secret", volume["secret"]["secretName"]]
        wanted = {each["key"]: each["path"] for each in volume["secret"].get("items", ())}
        return {wanted.get(key, key): text for key, text in found.items() if not wanted or key in wanted}

    def environment(self) -> Mapping[str, str]:
        """The variables of its process."""
        path = os.pathsep.join([str(HERE / "on_path"), str(Path(sys.executable).parent), os.environ["PATH"]])
        found = {"PATH": path, "HOME": str(self._folder), "HOSTNAME": self.name}
        python = [str(HERE / "site"), str(ROOT), str(ROOT / "clients")]
        found |= {"PYTHONPATH": os.pathsep.join(python), "PODS_HOSTS": str(self._world.hosts)}
        found |= {"PODS_ZOOKEEPER_JARS": str(_JARS), "PODS_HOSTS_OF_JAVA": str(self._world.hosts_of_java)}
        found["PODS_ADDRESS"] = self.ip
        for variable in self._container.get("env", ()):
            found[variable["name"]] = self._here(self._value(variable))
        for name, path_in_image in (("ZOO_CONF_DIR", "/conf"), ("ZOO_DATA_DIR", "/data")):
            if path_in_image in self._paths:
                found[name] = str(self._paths[path_in_image])
        # All addresses of a pod are its own. Here they are all pods'.
        return found | ({"BRAIDMQ_HOST": self.ip} if found.get("BRAIDMQ_HOST") == EVERYWHERE else {})

    def _command(self) -> Sequence[str]:
        """With what Kubernetes puts in for variables."""
        words = (*self._container["command"], *self._container.get("args", ()))
        return [self._here(expanded(each, self.environment())) for each in words]

    def _value(self, variable: Mapping[str, Any]) -> str:
        if "value" in variable:
            return str(variable["value"])
        source = variable["valueFrom"]
        if "secretKeyRef" in source:
            return self._world.objects["Secret", source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
        # What a pod has no label for is empty.
        return {"status.podIP": self.ip, "metadata.name": self.name}.get(source["fieldRef"]["fieldPath"], "")

    def _here(self, text: str) -> str:
        return _placed(text, {**self._paths, _ENTRY_POINT: HERE / "on_path" / "docker-entrypoint.sh"})


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """What Kubernetes makes of a word of a command: `$(NAME)` is the variable, if there is one, and `$$` is `$`."""

    def replaced(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replaced, text)


def _placed(text: str, paths: Mapping[str, Path]) -> str:
    """The text with folders of the test for those of the container."""
    longest_first = sorted(paths, key=len, reverse=True)
    return re.sub(
        rf"(?<![\w/.-])({'|'.join(map(re.escape, longest_first))})(?=[/\s\"',;]|$)",
        lambda found: str(paths[found[1]]),
        text,
    )


def objects_of(found: Sequence[Manifest]) -> Mapping[tuple[str, str], Mapping[str, str]]:
    """The contents of secrets and config maps, by kind and name."""
    return {
        (each["kind"], each["metadata"]["name"]): each.get("stringData") or each["data"]
        for each in found
        if each["kind"] in ("Secret", "ConfigMap")
    }
