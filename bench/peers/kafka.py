"""Kafka beside a broker: one process in KRaft mode, from the jars that Maven serves.

Kafka acknowledges what it has written to its files, and has the operating system sync them when it likes. Our local
store syncs each file before it acknowledges. There is one replica, so `acks=all` is the answer of the one broker.
"""

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness.counted_program import Counted, run_counted
from bench.harness.running import show_progress
from bench.harness.server_process import BenchFailed, scratch_folder, stop
from bench.peers.versions import FOLDER, versions
from filer.clock import SystemClock
from mq.local.ports import free_port

_POM = Path(__file__).with_name("kafka.pom.xml")
_LOAD = Path(__file__).with_name("KafkaLoad.java")
_CLUSTER = "AAAAAAAAQACAAAAAAAAAAA"
_LEAST_JAVA = 17
_JAVA_VERSION = re.compile(r'version "(\d+)')
_ADDRESS = re.compile(r"^listeners=PLAINTEXT://([^,]+),", re.MULTILINE)
_START_SECONDS = 60.0
# As Kafka's own scripts start it.
_SERVER_OPTIONS = (
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
# As in the server.properties that Kafka comes with; topics are made as each case needs them.
_SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
"""


@dataclass(frozen=True, slots=True)
class Kafka:
    """The jars, as Java's class path names them."""

    jars: str


@dataclass(frozen=True, slots=True)
class KafkaBroker:
    """A running broker."""

    kafka: Kafka
    address: str
    pid: int

    def load(self, *arguments: object) -> Counted:
        """Run `KafkaLoad.java`: `arguments` are its command, and what comes behind the address."""
        command, *rest = map(str, arguments)
        return run_counted([*_java(self.kafka, "-Xmx1G"), str(_LOAD), command, self.address, *rest], server=self.pid)


def kafka() -> Kafka:
    """Fetch it if it is not there. Raises `BenchFailed` without Java or Maven, or if Maven fails."""
    _check_java()
    pinned = versions()["kafka"]
    folder = FOLDER / f"kafka-{pinned['version']}"
    if not folder.exists():
        _copy(pinned, folder)
    return Kafka(f"{folder}/*")


def _check_java() -> None:
    java = shutil.which("java")
    if java is None:
        raise BenchFailed(f"Kafka runs on Java {_LEAST_JAVA} or later, and there is no java in PATH")
    said = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
    found = _JAVA_VERSION.search(said)
    if found is None or int(found[1]) < _LEAST_JAVA:
        raise BenchFailed(f"Kafka runs on Java {_LEAST_JAVA} or later; java -version says {said.splitlines()[:1]}")


def _copy(pinned: dict[str, str], folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise BenchFailed(
            "Kafka's jars come from Maven's registry, and there is no mvn in PATH (apt-get install maven)"
        )
    show_progress(f"fetching Kafka {pinned['version']} with Maven: a minute, once")
    unfinished = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [
        maven,
        "--quiet",
        "--batch-mode",
        f"--file={_POM}",
        f"-Dmaven.repo.local={FOLDER / 'maven'}",
        f"-Dkafka={pinned['version']}",
        f"-Dlogging={pinned['logging']}",
        "-DincludeScope=runtime",
        f"-DoutputDirectory={unfinished}",
        pinned["copied_by"],
    ]
    if subprocess.run(command).returncode:
        raise BenchFailed("Maven could not fetch Kafka, as told above")
    unfinished.rename(folder)


@contextlib.contextmanager
def kafka_broker(programs: Kafka) -> Iterator[KafkaBroker]:
    """Run a new broker with its files in memory."""
    with scratch_folder() as folder, started_broker(programs, folder) as broker:
        yield broker


@contextlib.contextmanager
def started_broker(programs: Kafka, folder: Path) -> Iterator[KafkaBroker]:
    """Run the broker of a folder, which is a new one if the folder is empty. It may not take requests yet."""
    settings, log = folder / "server.properties", folder / "log"
    if not settings.exists():
        clock = SystemClock()
        ports = {"port": free_port(clock), "controller": free_port(clock)}
        settings.write_text(_SETTINGS.format(folder=folder / "data", **ports), "utf-8")
        _run(
            [*_java(programs), "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(settings), "--standalone"]
        )
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*_java(programs, *_SERVER_OPTIONS), "kafka.Kafka", str(settings)], stdout=output, stderr=output
        )
    try:
        yield KafkaBroker(programs, _address(settings.read_text("utf-8")), process.pid)
        if process.poll() is not None:
            raise BenchFailed(f"Kafka ended with {process.returncode}: {log.read_text()[-500:]}")
    finally:
        stop(process)


def _address(settings: str) -> str:
    found = _ADDRESS.search(settings)
    assert found is not None
    return found[1]


def _java(programs: Kafka, *options: str) -> list[str]:
    return ["java", *options, "-cp", programs.jars]


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_START_SECONDS)
    if done.returncode:
        raise BenchFailed(f"{command[3]} ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}")
