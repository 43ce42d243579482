"""A broker's connection to ZooKeeper, on kazoo. Blocking: one thread makes all calls, one after the other."""

import threading
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.protocol.states import KazooState

from filer.clock import Clock
from filer.event_log import EventLog
from leader.membership.coordinator import CoordinationFailed, NotAuthorized
from leader.membership.zookeeper_access import ZooKeeperAccess
from leader.membership.zookeeper_acls import NodeAcls
from leader.membership.zookeeper_round import Errand, Paths, RoundResult, Watches, ZooKeeperRound

# A longer round proves little: its session may be over at its end.
_ROUND_PART = 1 / 2
_LONGEST_ROUND_SECONDS = 5.0
# A client has at least this long to connect again before a new client replaces it, however short the session.
_SHORTEST_PATIENCE_SECONDS = 5.0
_CONNECTING = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}

_log = EventLog(__name__)


class ZooKeeperSession:
    """Rounds with ZooKeeper, through lost connections and sessions, and through a ZooKeeper that lost its data.

    `on_change` and `on_topic` are called on threads of kazoo's; `on_topic` with a topic, or None for any.
    """

    def __init__(
        self,
        hosts: str,
        cluster: str,
        clock: Clock,
        *,
        session_timeout_seconds: float,
        on_change: Callable[[], None],
        on_topic: Callable[[str | None], None],
        access: ZooKeeperAccess,
    ) -> None:
        self._hosts, self._paths, self._clock = hosts, Paths(cluster), clock
        self._wanted_seconds = session_timeout_seconds
        self._granted_seconds = 0.0
        self._on_change, self._on_topic = on_change, on_topic
        self._watches = Watches(cluster=lambda _: on_change(), topic=self._topic_changed)
        self._access = access
        shared, root = self._paths.folders[:2]
        self._node_acls = NodeAcls(shared, root, access) if access.credentials is not None else None
        self._client: KazooClient | None = None
        self._answered_at = 0.0

    def round(self, errand: Errand) -> RoundResult:
        """Do a round. Raises `CoordinationFailed` with any cause; the next round starts from the beginning."""
        began = self._clock.monotonic_seconds()
        if self._client is None:
            self._client = self._open()
            self._answered_at = began
        try:
            result = self._round(self._client, errand, began)
        except NoAuthError as error:
            raise NotAuthorized(
                f"ZooKeeper does not let this broker use the nodes of the cluster below {self._paths.root}: "
                + (
                    "its credentials are not those that made them"
                    if self._access.credentials
                    else "it has no credentials"
                )
                + "; give all brokers of the cluster the same --zookeeper-auth"
            ) from error
        except NotAuthorized:
            raise
        except Exception as error:
            # Not only kazoo's own errors: an error that a broken answer causes must not stop the rounds for ever.
            self._give_up_when_silent()
            raise CoordinationFailed(_words(error)) from error
        self._answered_at = began
        return result

    def close(self, timeout_seconds: float) -> None:
        """End the session, and with it its ephemeral nodes; wait so long at most."""
        if self._client is not None:
            _dispose(self._client).join(timeout_seconds)
            self._client = None

    def _round(self, client: KazooClient, errand: Errand, began: float) -> RoundResult:
        session_seconds = self._granted_seconds or self._wanted_seconds
        seconds = min(session_seconds * _ROUND_PART, _LONGEST_ROUND_SECONDS)
        calls = ZooKeeperRound(client, self._paths, self._watches, self._clock, deadline=began + seconds)
        return calls.run(errand, lambda: self._granted_seconds, self._node_acls)

    def _give_up_when_silent(self) -> None:
        """Replace a client that has had no answer for longer than its session can have lived.

        A ZooKeeper that comes back without its data refuses, for ever, a client that has seen newer data; and kazoo's
        thread may have ended with an error. The next round replaces the nodes that the lost session left behind.
        """
        patience = max(self._wanted_seconds, self._granted_seconds, _SHORTEST_PATIENCE_SECONDS)
        if self._client is not None and self._clock.monotonic_seconds() - self._answered_at > patience:
            _dispose(self._client)
            self._client = None

    def _open(self) -> KazooClient:
        client = KazooClient(
            self._hosts,
            timeout=self._wanted_seconds,
            connection_retry=dict(_CONNECTING),
            **self._access.options(),
        )
        self._remember_what_is_granted(client)
        client.add_listener(self._state_changed)
        client.start_async()
        return client

    def _remember_what_is_granted(self, client: KazooClient) -> None:
        """Note the session time-out that the server grants within its own bounds: kazoo only logs it."""
        connection = client._connection
        connect = connection._connect

        def connecting(*address: Any) -> Any:
            read_timeout_ms, connect_timeout_ms = connect(*address)
            # This is known before any answer on this connection: the thread that connects also reads the answers.
            self._granted_seconds = read_timeout_ms * 3 / 2 / 1000
            return read_timeout_ms, connect_timeout_ms

        connection._connect = connecting

    def _state_changed(self, state: KazooState) -> None:
        self._on_change()

    def _topic_changed(self, event: Any) -> None:
        # An event without a path: the connection was lost, and every watch with it.
        self._on_topic(event.path.rpartition("/")[2] if event.path else None)


def _dispose(client: KazooClient) -> threading.Thread:
    """Stop a client on a thread of its own: with a silent server that takes long, and no caller needs to wait."""

    def stop() -> None:
        try:
            client.stop()
            client.close()
        except Exception as error:
            _log.debug("zookeeper_client_not_stopped", error=error)

    thread = threading.Thread(target=stop, name="braidmq-zookeeper-stop", daemon=True)
    thread.start()
    return thread


def _words(error: Exception) -> str:
    """The error as text; most of kazoo's errors have only a name."""
    return str(error) if isinstance(error, CoordinationFailed) else f"{type(error).__name__}: {error}".rstrip(": ")
