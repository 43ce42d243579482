"""A real ZooKeeper on this machine, alone or an ensemble, from the jars that come with PySpark."""

import importlib.util
import os
import shutil
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filer.clock import Clock
from mq.local.child import ChildProcess, ToolMissing
from mq.local.ports import free_port

HOST = "127.0.0.1"
_ASK_SECONDS = 0.5
_SHORTEST_TICK_MS, _LONGEST_TICK_MS = 100, 2000
_TICKS_PER_SESSION = 10
_LONGEST_SESSION_MS = 120_000
# How long members may take to find each other, and how far one may lag behind. Independent of the tick.
_INIT_MS, _SYNC_MS = 20_000, 5_000
_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.apache.logging.log4j.level=INFO",
    "-Dzookeeper.jmx.log4j.disable=true",
    # ZooKeeper's data may be lost (docs/design.md §8), and a laptop's disk is slow to sync.
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.preAllocSize=1024",
)


@dataclass(frozen=True, slots=True)
class ZooKeeperCertificates:
    """Files in PEM: key and certificate of the members, and the CA by which they know each other and their clients."""

    identity: Path
    ca: Path

    def settings(self, prefix: str) -> list[str]:
        """The lines of ZooKeeper's configuration that name them."""
        return [
            f"{prefix}.keyStore.location={self.identity}",
            f"{prefix}.keyStore.type=PEM",
            f"{prefix}.trustStore.location={self.ca}",
            f"{prefix}.trustStore.type=PEM",
        ]

    def client_context(self) -> ssl.SSLContext:
        """Return a context for a client that shows the same certificate."""
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.identity)
        return context


@dataclass(frozen=True, slots=True)
class _Member:
    """The ports of one member of an ensemble."""

    number: int
    client_port: int
    peer_port: int
    election_port: int


class ZooKeeperNode:
    """One ZooKeeper process. Started again, it has the same port and data."""

    def __init__(
        self,
        folder: Path,
        member: _Member,
        ensemble: tuple[_Member, ...],
        *,
        tick_ms: int,
        certificates: ZooKeeperCertificates | None = None,
    ) -> None:
        self.folder, self.port = folder, member.client_port
        self._member, self._ensemble, self._tick_ms, self._certificates = member, ensemble, tick_ms, certificates
        main = "quorum.QuorumPeerMain" if len(ensemble) > 1 else "ZooKeeperServerMain"
        command = [_java(), *_OPTIONS, "-cp", _classpath(), f"org.apache.zookeeper.server.{main}", str(self._config)]
        self.process = ChildProcess(f"zookeeper-{member.number}", command, folder / "zookeeper.log")

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Start it with the data in its folder. Clients can connect once `serves` is true."""
        self._data.mkdir(parents=True, exist_ok=True)
        (self._data / "myid").write_text(f"{self._member.number}\n")
        self._config.write_text(self._settings())
        self.process.start()

    def forget(self) -> None:
        """Delete its data. Only while it does not run."""
        assert not self.process.running, "a running ZooKeeper needs its data"
        shutil.rmtree(self._data, ignore_errors=True)

    def serves(self) -> bool:
        """Whether it answers clients; in an ensemble, whether it belongs to a quorum."""
        with suppress(OSError), self._connected() as connection:
            connection.sendall(b"srvr")
            answer = b""
            while part := connection.recv(4096):
                answer += part
            return b"Mode: " in answer
        return False

    @contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        with socket.create_connection((HOST, self.port), _ASK_SECONDS) as plain:
            if self._certificates is None:
                yield plain
                return
            with self._certificates.client_context().wrap_socket(plain, server_hostname=HOST) as secured:
                yield secured

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _config(self) -> Path:
        return self.folder / "zoo.cfg"

    def _settings(self) -> str:
        lines = [
            f"tickTime={self._tick_ms}",
            f"dataDir={self._data}",
            *self._port_settings(),
            f"minSessionTimeout={2 * self._tick_ms}",
            f"maxSessionTimeout={_LONGEST_SESSION_MS}",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            f"initLimit={_INIT_MS // self._tick_ms}",
            f"syncLimit={_SYNC_MS // self._tick_ms}",
        ]
        if len(self._ensemble) > 1:
            lines += [f"server.{each.number}={HOST}:{each.peer_port}:{each.election_port}" for each in self._ensemble]
        return "\n".join(lines) + "\n"

    def _port_settings(self) -> list[str]:
        if self._certificates is None:
            return [f"clientPort={self.port}", f"clientPortAddress={HOST}"]
        # There is no other port: a client without a certificate of this CA does not even get an answer.
        return [
            f"secureClientPort={self.port}",
            f"secureClientPortAddress={HOST}",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.clientAuth=need",
            "client.certReload=true",
            "sslQuorum=true",
            "sslQuorumReloadCertFiles=true",
            *(line for prefix in ("ssl", "ssl.quorum") for line in self._certificates.settings(prefix)),
        ]


def zookeeper_nodes(
    folder: Path,
    count: int,
    clock: Clock,
    *,
    session_timeout_seconds: float,
    certificates: ZooKeeperCertificates | None = None,
) -> list[ZooKeeperNode]:
    """Return a single ZooKeeper, or the members of an ensemble, not started yet.

    Each has its own folder below `folder`. With certificates they speak TLS alone, to each other as well.

    Raises `ToolMissing` if there is no Java or no PySpark.
    """
    tick_ms = int(session_timeout_seconds * 1000) // _TICKS_PER_SESSION
    tick_ms = max(_SHORTEST_TICK_MS, min(tick_ms, _LONGEST_TICK_MS))
    ports = _distinct_ports(3 * count, clock)
    ensemble = tuple(_Member(index + 1, *ports[3 * index : 3 * index + 3]) for index in range(count))
    return [
        ZooKeeperNode(
            folder / f"zookeeper-{member.number}", member, ensemble, tick_ms=tick_ms, certificates=certificates
        )
        for member in ensemble
    ]


def _distinct_ports(count: int, clock: Clock) -> list[int]:
    ports: set[int] = set()
    while len(ports) < count:
        ports.add(free_port(clock))
    return list(ports)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise ToolMissing("ZooKeeper needs Java 17 or later, and there is no java on the PATH: install one")
    return found


def _classpath() -> str:
    spec = importlib.util.find_spec("pyspark")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders:
        raise ToolMissing("ZooKeeper comes with PySpark, which is not installed: pip install 'braidmq[spark]'")
    return str(Path(folders[0], "jars", "*"))
