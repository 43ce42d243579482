"""Makes the existing nodes of a cluster as open, or as closed, as new ones are: some in each round."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.security import ACL, Permissions

from filer.event_log import EventLog
from leader.membership.coordinator import NotAuthorized
from leader.membership.zookeeper_access import ZooKeeperAccess

NODES_PER_ROUND = 200
_LETTERS = {
    "c": Permissions.CREATE,
    "d": Permissions.DELETE,
    "r": Permissions.READ,
    "w": Permissions.WRITE,
    "a": Permissions.ADMIN,
}

_log = EventLog(__name__)


class NodeAcls:
    """Closes the nodes that others have left open, or opens those of the holders of the credentials: once a session.

    While brokers are restarted one by one, others go on to create nodes of the other kind. When the last of them has
    ended, the session of the broker in its place finds all that are left. `shared` is the folder of all clusters: it
    stays as it is while another cluster is in it. Repeating it changes nothing.

    The creator of a node has decided the first rights to it: for all, for an address, or for its own credentials beside
    ours. So a node counts as closed by what its ACL is, and not by what it lacks. A broker does not start if others
    keep rights that it cannot take from them.
    """

    def __init__(self, shared: str, root: str, access: ZooKeeperAccess) -> None:
        self._shared, self._root, self._access = shared, root, access
        self._session = 0
        self._has_started = False
        self._waiting: deque[str] = deque()

    def change_some(self, client: KazooClient, session: int, wait: Callable[[Any], Any]) -> bool:
        """Change some; returns whether others are left for the next round.

        Raises `NotAuthorized` in the first round of a broker if it may not close a node. A running broker only logs it:
        if it stopped, the creator of that node could stop the cluster.
        """
        if session != self._session:
            self._waiting = deque(self._all(client, wait))
            self._session = session
        some = [self._waiting[n] for n in range(min(NODES_PER_ROUND, len(self._waiting)))]
        found = [(path, client.get_acls_async(path)) for path in some]
        other = [(path, acls) for path, answer in found if (acls := self._other_acl(answer, wait)) is not None]
        wanted = self._access.acl
        changes = [(path, acls, client.set_acls_async(path, wanted)) for path, acls in other]
        foreign = [(path, acls) for path, acls, change in changes if not self._is_changed(path, change, wait)]
        if self._access.closes_nodes:
            self._tell(foreign)
        # Only now: a round that stops in between begins with the same nodes again.
        for _ in some:
            self._waiting.popleft()
        self._has_started = True
        if changed := len(changes) - len(foreign):
            _log.info("zookeeper_nodes_changed", root=self._root, nodes=changed, open=self._access.is_open)
        return bool(self._waiting)

    def _all(self, client: KazooClient, wait: Callable[[Any], Any]) -> list[str]:
        below = [f"{self._root}/{name}" for name in wait(client.get_children_async(self._root))]
        names = [(path, client.get_children_async(path)) for path in below]
        return [
            *([] if self._has_others(client, wait) else [self._shared]),
            self._root,
            *below,
            *(f"{path}/{name}" for path, found in names for name in wait(found)),
        ]

    def _has_others(self, client: KazooClient, wait: Callable[[Any], Any]) -> bool:
        try:
            return len(wait(client.get_children_async(self._shared))) > 1
        except NoAuthError:
            return True  # it belongs to another cluster

    def _other_acl(self, answer: Any, wait: Callable[[Any], Any]) -> list[ACL] | None:
        """The ACL of a node if it is not as it should be; an empty one if this broker may not even read it."""
        try:
            acls: list[ACL] = wait(answer)[0]
        except NoNodeError:
            return None
        except NoAuthError:
            return []
        return None if self._access.is_wanted(acls) else acls

    @staticmethod
    def _is_changed(path: str, change: Any, wait: Callable[[Any], Any]) -> bool:
        try:
            wait(change)
        except NoNodeError as error:
            _log.debug("zookeeper_node_gone", path=path, error=error)
        except NoAuthError:
            return False
        return True

    def _tell(self, foreign: Sequence[tuple[str, Sequence[ACL]]]) -> None:
        for path, acls in foreign:
            if path == self._shared:
                # An administrator may have created it. Its owner cannot delete or change a cluster that is in it.
                _log.debug("zookeeper_node_not_changed", path=path, acl=in_words(acls))
            elif not self._has_started:
                raise NotAuthorized(
                    f"others have rights in ZooKeeper's node {path}, and this broker may not change that: its ACL is "
                    f"{in_words(acls)}; delete the node while no broker runs, or give it to the user of "
                    "--zookeeper-auth alone (setAcl)"
                )
            else:
                _log.error("zookeeper_node_foreign", path=path, acl=in_words(acls))


def in_words(acls: Sequence[ACL]) -> str:
    """An ACL as an operator knows it, without the hashes of passwords: `world:anyone cdrwa`."""
    return ", ".join(map(_in_words, acls)) or "hidden from it"


def _in_words(acl: ACL) -> str:
    who = acl.id.id.partition(":")[0] if acl.id.scheme == "digest" else acl.id.id
    return f"{acl.id.scheme}:{who} {''.join(letter for letter, bit in _LETTERS.items() if acl.perms & bit)}"
