"""What the controllers of Kubernetes do with the chart's manifests, on this machine: which pods there are, and when.

Names of services lead to the ready pods behind them, as those of a headless service do.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.kube.chart import NAMESPACE, Manifest, one
from tests.support.kube.pod import Pod, World, objects_of
from tests.support.process.processes import until

READY_SECONDS = 90.0


class Pods:
    """The pods of manifests. Leaving the context kills whatever runs."""

    def __init__(self, found: Sequence[Manifest], name: str, folder: Path) -> None:
        self._found, self._name = found, name
        self._world = World(folder, objects_of(found))
        self._addresses = _addresses()
        self._numbers = itertools.count()
        self.brokers: list[Pod] = []
        self.members: list[Pod] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for each in (*self.brokers, *self.members):
            each.kill()

    def install(self) -> None:
        """Start everything at once, and wait until all of it is ready."""
        spec = one(self._found, "StatefulSet", f"{self._name}-zookeeper")["spec"]
        template = spec["template"]["spec"]
        for number in range(spec["replicas"]):
            self.members.append(Pod(self._world, template, f"{self._name}-zookeeper-{number}", next(self._addresses)))
        self._write_names()
        deployment = one(self._found, "Deployment", self._name)["spec"]
        for _ in range(deployment["replicas"]):
            self.brokers.append(self._new_broker())
        for each in (*self.members, *self.brokers):
            each.start()
        self.until_ready()

    def until_ready(self) -> None:
        """Until the readiness probes of all pods succeed. What has ended is started again, as the kubelet does."""

        def all_ready() -> bool:
            for each in (*self.members, *self.brokers):
                if each.has_ended():
                    each.start()
            return all(each.is_ready() for each in (*self.members, *self.brokers))

        until(all_ready, timeout_seconds=READY_SECONDS)
        self._write_names()

    def roll_out(self) -> list[int]:
        """Replace each broker, in the order of a Deployment with a surge of one. The exit codes of the old ones."""
        codes = []
        for old in list(self.brokers):
            new = self._new_broker()
            self.brokers.append(new)
            new.start()
            self.until_ready()
            # No new connections reach it any more, and then it is told.
            self.brokers.remove(old)
            self._write_names()
            codes.append(old.stop())
        return codes

    def hook(self, name: str) -> Pod:
        """A pod that runs to its end."""
        return Pod(self._world, one(self._found, "Pod", name)["spec"], name, next(self._addresses))

    def job(self, name: str) -> Pod:
        """A pod of a CronJob, which runs to its end."""
        template = one(self._found, "CronJob", name)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        return Pod(self._world, template, name, next(self._addresses))

    def _new_broker(self) -> Pod:
        template = one(self._found, "Deployment", self._name)["spec"]["template"]["spec"]
        return Pod(self._world, template, f"{self._name}-{next(self._numbers)}", next(self._addresses))

    def _write_names(self) -> None:
        in_java = [f"{each.ip} {each.name}.{self._name}-zookeeper.{NAMESPACE}.svc" for each in self.members]
        self._world.hosts_of_java.write_text("\n".join(in_java) + "\n")
        names = [f"{each.name}.{self._name}-zookeeper.{NAMESPACE}.svc {each.ip}" for each in self.members]
        ready = " ".join(each.ip for each in self.brokers if each.is_ready())
        lines = [*names, f"{self._name}.{NAMESPACE}.svc {ready}"]
        made = self._world.hosts.with_suffix(".new")
        made.write_text("\n".join(lines) + "\n")
        # Whoever reads it reads all of it.
        made.replace(self._world.hosts)


def _addresses() -> Iterator[str]:
    """Addresses of this machine that no other test has: its process chooses them."""
    first, second = divmod(os.getpid() % (250 * 250), 250)
    return (f"127.{first + 2}.{second + 2}.{number}" for number in itertools.count(2))
