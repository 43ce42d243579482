"""A local cluster: its processes, and the order in which they start and end."""

import contextlib
import fcntl
import importlib.util
import signal
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import httpx

from filer.clock import Clock
from filer.errors import BraidError
from leader.membership.coordinator import NO_SESSION
from mq.base.listening_sign import url_told
from mq.local.child import ChildProcess, ProcessFailed, ToolMissing, how_it_ended
from mq.local.secure.own_files import keep_to_owner, refuse_if_not_own
from mq.local.secure.secure_folder import FOLDER, SecureFolder
from mq.local.zookeeper import HOST, ZooKeeperCertificates, ZooKeeperNode, zookeeper_nodes
from mq.peer_keys.peer_keys import new_peer_keys
from mq.process.listen import CannotListen, bind
from mq.security.written_files import write_replacing

CLUSTER = "local"
PEER_KEYS = "peer-keys"
START_SECONDS = 60.0
# Longer than a broker's own --drain-timeout.
DRAIN_SECONDS = 35.0
_END_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 2.0
_BUCKET = "braidmq"
# moto takes any credentials. Without them a broker would search for some.
S3_ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local", "AWS_EC2_METADATA_DISABLED": "true"}

StoreKind = Literal["directory", "s3"]


class FolderInUse(BraidError):
    """Another local cluster runs on this folder."""


class PortTaken(BraidError):
    """Another program listens on the port of a broker."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Settings of a local cluster. Brokers listen on `first_port` and the ports after it; 0 takes free ports.

    With `secure`, no client gets in without a credential, also on this machine, and nothing is sent in the clear.
    """

    folder: Path
    brokers: int = 3
    zookeepers: Literal[1, 3] = 1
    store: StoreKind = "directory"
    first_port: int = 8080
    session_timeout_seconds: float = 10.0
    secure: bool = False


class LocalBroker(ChildProcess):
    """A broker of the cluster: `mq serve`."""

    @property
    def url(self) -> str:
        """Its URL; empty until the broker has logged it."""
        for line in self.output().splitlines():
            if (url := url_told(line)) is not None:
                return url
        return ""

    @property
    def ended_well(self) -> bool:
        """Whether it drained. Before it takes requests it has nothing to drain, and a signal may simply end it."""
        return self.returncode == 0 or (self.returncode == -signal.SIGTERM and not self.url)


class LocalCluster:
    """The processes of a cluster. `start`, then poll `newly_ended`, then `stop`; all log below `folder`.

    `tell` gets lines for the user. Raises `ToolMissing` if something is not installed.
    """

    def __init__(self, settings: LocalSettings, clock: Clock, tell: Callable[[str], None] = lambda line: None) -> None:
        self.settings, self._clock = settings, clock
        self.folder = settings.folder.resolve()
        self.secure = SecureFolder(self.folder / FOLDER, CLUSTER, clock, tell) if settings.secure else None
        self.zookeepers: list[ZooKeeperNode] = zookeeper_nodes(
            self.folder,
            settings.zookeepers,
            clock,
            session_timeout_seconds=settings.session_timeout_seconds,
            certificates=None if self.secure is None else ZooKeeperCertificates(self.secure.zookeeper, self.secure.ca),
        )
        self.s3 = self._s3_server() if settings.store == "s3" else None
        self.s3_endpoint = ""
        self.brokers: list[LocalBroker] = []
        self._reported: set[ChildProcess] = set()

    @property
    def hosts(self) -> str:
        """The addresses of ZooKeeper, as `host:port,host:port`."""
        return ",".join(node.address for node in self.zookeepers)

    @property
    def store(self) -> str:
        """The URL of the store."""
        return f"s3://{_BUCKET}" if self.s3 is not None else (self.folder / "store").as_uri()

    @property
    def processes(self) -> list[ChildProcess]:
        """All processes, in the order in which they start."""
        return [node.process for node in self.zookeepers] + ([self.s3] if self.s3 is not None else []) + [*self.brokers]

    def broker_command(self, name: str, port: int) -> list[str]:
        """Return the arguments of `mq` for a broker of this cluster."""
        command = ["serve", "--broker", name, "--cluster", CLUSTER, "--port", str(port), "--store", self.store]
        command += ["--zookeeper", self.hosts, "--session-timeout", f"{self.settings.session_timeout_seconds:g}"]
        if self.s3 is not None:
            command += ["--s3-endpoint", self.s3_endpoint, "--s3-region", "us-east-1", "--s3-addressing", "path"]
        keys = ["--peer-keys", str(self.peer_keys)]
        return command + keys + ([] if self.secure is None else _secure_options(self.secure))

    @property
    def peer_keys(self) -> Path:
        """The keys by which its brokers know each other: readers of the store do not have them."""
        return self.folder / PEER_KEYS if self.secure is None else self.secure.peer_keys

    def refuse_what_others_placed(self) -> None:
        """Create the folder. Raises `InvalidInput` if it, or a file of this cluster in it, is not the user's alone.

        Before the lock, which opens a file there and deletes logs. The folder comes first: once no other user may write
        to it, no other user changes the rest. Both names are checked: the link that one of them was may be gone.
        """
        self.settings.folder.mkdir(parents=True, exist_ok=True)
        zookeepers = [node.folder for node in self.zookeepers]
        inside = [self.folder / name for name in ("lock", "logs", "store", FOLDER)]
        for path in (self.settings.folder, self.folder, *inside, *zookeepers):
            refuse_if_not_own(path)

    async def start(self) -> None:
        """Start everything, and wait until every broker takes requests.

        Raises `PortTaken`, `ProcessFailed` with the name of a process that ended or is not ready in time, and
        `InvalidInput` for secrets that cannot be used.
        """
        if self.secure is not None:
            self.secure.prepare()
            # A broker decides which clients may read messages, also those that another run has left here.
            keep_to_owner(self.folder / "store")
        else:
            # New in each run: no broker of another run is a broker of this one.
            write_replacing(self.peer_keys, new_peer_keys(self._clock), mode=0o600, clock=self._clock)
        for number in range(1, self.settings.brokers + 1):
            _check_port(self._port(number))
        for node in self.zookeepers:
            # ZooKeeper's data may be lost (docs/design.md §8). Without it, brokers of an earlier run need not expire.
            node.forget()
            node.start()
        if self.s3 is not None:
            self.s3.start()
            await self._open_s3(self.s3)
        for node in self.zookeepers:
            await self._until(node.process, _at_once(node.serves))
        self.brokers = [self._broker(number) for number in range(1, self.settings.brokers + 1)]
        for broker in self.brokers:
            broker.start()
        trust = True if self.secure is None else ssl.create_default_context(cafile=self.secure.ca)
        for broker in self.brokers:
            await self._until(broker, partial(_is_ready, broker, trust))

    def newly_ended(self) -> list[ChildProcess]:
        """Return the processes that have ended by themselves since the last call."""
        ended = [each for each in self.processes if each.started and not each.running and each not in self._reported]
        self._reported.update(ended)
        return ended

    async def stop(self) -> list[LocalBroker]:
        """End all processes. Brokers drain first, while the store and ZooKeeper still run.

        Returns the brokers that did not end well; none runs any more.
        """
        asked = [broker for broker in self.brokers if broker.running]
        await self._end(asked, DRAIN_SECONDS)
        await self._end([each for each in self.processes if each.running], _END_SECONDS)
        return [broker for broker in asked if not broker.ended_well]

    def kill(self) -> None:
        """Kill all processes."""
        for process in self.processes:
            process.kill()

    async def _end(self, asked: Sequence[ChildProcess], seconds: float) -> None:
        """Ask running processes to end, and kill those that do not end in time."""
        for each in asked:
            each.send(signal.SIGTERM)
            # A stopped process handles SIGTERM only once it continues.
            each.send(signal.SIGCONT)
        deadline = self._clock.monotonic_seconds() + seconds
        while any(each.running for each in asked) and self._clock.monotonic_seconds() < deadline:
            await self._clock.sleep(_LOOK_SECONDS)
        for each in asked:
            each.kill()

    async def _until(self, process: ChildProcess, ready: Callable[[], Awaitable[bool]]) -> None:
        deadline = self._clock.monotonic_seconds() + START_SECONDS
        while not await ready():
            if not process.running:
                if self._clock.monotonic_seconds() <= deadline and _found_no_zookeeper(process):
                    # There is one, which was asked. A broker has few seconds for its session, and this machine is busy.
                    process.start()
                    continue
                raise ProcessFailed(f"{process.name} did not start: {how_it_ended(process.returncode or 0)}")
            if self._clock.monotonic_seconds() > deadline:
                raise ProcessFailed(
                    f"{process.name} was not ready within {START_SECONDS:g} seconds; its log is {process.log}"
                )
            await self._clock.sleep(_LOOK_SECONDS)

    async def _open_s3(self, server: ChildProcess) -> None:
        await self._until(server, _at_once(lambda: server.output().strip().isdigit()))
        self.s3_endpoint = f"http://127.0.0.1:{server.output().strip()}"
        async with httpx.AsyncClient(timeout=_ANSWER_SECONDS) as http:
            (await http.put(f"{self.s3_endpoint}/{_BUCKET}")).raise_for_status()

    def _s3_server(self) -> ChildProcess:
        if importlib.util.find_spec("moto") is None or importlib.util.find_spec("waitress") is None:
            raise ToolMissing("--store s3 needs an S3 server, which is not installed: pip install 'braidmq[s3-server]'")
        return ChildProcess("s3", [sys.executable, "-m", "mq.local.s3_server", "0"], self._log("s3"))

    def _broker(self, number: int) -> LocalBroker:
        name = f"broker-{number}"
        command = [sys.executable, "-m", "mq.cli.main", *self.broker_command(name, self._port(number))]
        return LocalBroker(name, command, self._log(name), env=S3_ENVIRONMENT if self.s3 is not None else None)

    def _port(self, number: int) -> int:
        return self.settings.first_port + number - 1 if self.settings.first_port else 0

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"


@contextlib.contextmanager
def folder_of_its_own(folder: Path) -> Iterator[None]:
    """Lock the folder against other local clusters, and delete old logs.

    Raises `FolderInUse`, and `OSError` if the folder cannot be created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The folder may have other uses, and contain a file of that name.
    with (folder / "lock").open("a") as lock:
        try:
            # The kernel releases the lock when the process ends, in any way.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderInUse(
                f"another local cluster runs on {folder}: stop it, or take another folder with --data"
            ) from error
        # Logs of earlier runs would be mistaken for this run's. Other files there are not ours to delete.
        for log in [*(folder / "logs").glob("broker-*.log"), folder / "logs" / "s3.log"]:
            log.unlink(missing_ok=True)
        yield


def _found_no_zookeeper(process: ChildProcess) -> bool:
    """Whether its newest run has ended because ZooKeeper gave it no session in time."""
    last = process.output().rstrip().rpartition("\n")[2]
    return isinstance(process, LocalBroker) and NO_SESSION in last


def _check_port(port: int) -> None:
    """Check before anything starts: a broker would notice only after all that it needs has started."""
    try:
        bind(HOST, port).close()
    except CannotListen as error:
        raise PortTaken(
            f"something listens on port {port} already: choose others with --port (port 0 takes free ones)"
        ) from error


def _at_once(ready: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def asked() -> bool:
        return ready()

    return asked


def _secure_options(secure: SecureFolder) -> list[str]:
    """Return the options of a broker that trusts no client. They name files: a list of processes shows no secret."""
    return [
        *("--authorizer", "tokens", "--token-keys", str(secure.public_keys)),
        *("--tls-cert", str(secure.broker), "--tls-key", str(secure.broker), "--tls-ca", str(secure.ca)),
        *("--peer-port", "0", "--peer-tls-ca", str(secure.ca)),
        *("--peer-tls-cert", str(secure.broker), "--peer-tls-key", str(secure.broker)),
        *("--zookeeper-auth", str(secure.zookeeper_auth)),
        *("--zookeeper-tls", "--zookeeper-ca", str(secure.ca)),
        *("--zookeeper-cert", str(secure.broker), "--zookeeper-key", str(secure.broker)),
    ]


async def _is_ready(broker: LocalBroker, trust: ssl.SSLContext | bool) -> bool:
    if not broker.url:
        return False
    try:
        async with httpx.AsyncClient(timeout=_ANSWER_SECONDS, verify=trust) as http:
            return (await http.get(f"{broker.url}/readyz")).status_code == 200
    except httpx.TransportError:
        return False
