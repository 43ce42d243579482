"""Makes the nodes of a cluster that are there already as open, or as closed, as new ones are: some in each round."""

from collections import deque
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.security import ACL, ANYONE_ID_UNSAFE

from filer.event_log import EventLog
from leader.membership.zookeeper_access import ZooKeeperAccess

NODES_PER_ROUND = 200

_log = EventLog(__name__)


class NodeAcls:
    """Closes the nodes that others have left open, or opens those that have the credentials: in each session, once.

    While brokers are restarted one by one, others go on to make nodes of the other kind. When the last of them has
    ended, the session of the broker in its place finds all that is left. `shared` is the folder of all clusters: it is
    left as it is while another cluster is in it. Repeating it changes nothing.
    """

    def __init__(self, shared: str, root: str, access: ZooKeeperAccess) -> None:
        self._shared, self._root, self._access = shared, root, access
        self._session = 0
        self._waiting: deque[str] = deque()

    def change_some(self, client: KazooClient, session: int, wait: Callable[[Any], Any]) -> bool:
        """Change some; whether others are left for the next round."""
        if session != self._session:
            self._waiting = deque(self._all(client, wait))
            self._session = session
        some = [self._waiting[n] for n in range(min(NODES_PER_ROUND, len(self._waiting)))]
        found = [(path, client.get_acls_async(path)) for path in some]
        wanted = self._access.acl
        changes = [(path, client.set_acls_async(path, wanted)) for path, acls in found if self._differ(acls, wait)]
        for path, change in changes:
            try:
                wait(change)
            except (NoNodeError, NoAuthError) as error:
                _log.debug("zookeeper_node_not_changed", path=path, error=error)
        # Only now: a round that stops in between begins with the same nodes again.
        for _ in some:
            self._waiting.popleft()
        if changes:
            _log.info("zookeeper_nodes_changed", root=self._root, nodes=len(changes), open=self._access.is_open)
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

    def _differ(self, answer: Any, wait: Callable[[Any], Any]) -> bool:
        try:
            acls: list[ACL] = wait(answer)[0]
        except (NoNodeError, NoAuthError):
            return False  # it is gone, or somebody else's
        return any(acl.id == ANYONE_ID_UNSAFE for acl in acls) == self._access.closes_nodes
