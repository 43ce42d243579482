"""What becomes of nodes whose ACL is not the wanted one, against a ZooKeeper in memory."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from leader.membership.coordinator import NotAuthorized
from leader.membership.zookeeper_access import ZooKeeperAccess
from leader.membership.zookeeper_acls import NodeAcls, in_words

OURS = [make_digest_acl("braid", "secret", all=True)]
FOREIGN = [make_acl("ip", "10.0.0.0/8", read=True, write=True)]
HIDDEN: list[ACL] = []
CLOSED, OPENING = ZooKeeperAccess("braid:secret"), ZooKeeperAccess("braid:secret", is_open=True)


def wait(answer: Callable[[], Any]) -> Any:
    return answer()


class FakeNodes:
    """The ACLs of nodes. Those of `locked` are not ours to change."""

    def __init__(self, acls: dict[str, list[ACL]], locked: set[str]) -> None:
        self.acls, self.locked, self.set_count = acls, locked, 0

    def get_children_async(self, path: str) -> Callable[[], list[str]]:
        return lambda: [each[len(path) + 1 :] for each in self.acls if each.rpartition("/")[0] == path]

    def get_acls_async(self, path: str) -> Callable[[], Any]:
        def answer() -> Any:
            if not self.acls[path]:
                raise NoAuthError
            return self.acls[path], SimpleNamespace()

        return answer

    def set_acls_async(self, path: str, wanted: list[ACL]) -> Callable[[], None]:
        def answer() -> None:
            if path in self.locked:
                raise NoAuthError
            if path not in self.acls:
                raise NoNodeError
            self.acls[path] = OURS if wanted == CREATOR_ALL_ACL else wanted
            self.set_count += 1

        return answer


def nodes(theirs: list[ACL], path: str, *, locked: bool) -> FakeNodes:
    acls = dict.fromkeys(("/braidmq", "/braidmq/c", "/braidmq/c/topics", "/braidmq/c/topics/t"), OURS)
    return FakeNodes({**acls, path: theirs}, {path} if locked else set())


def change(client: FakeNodes, acls: NodeAcls, session: int = 1) -> bool:
    return acls.change_some(cast(KazooClient, client), session, wait)


@pytest.mark.parametrize("theirs", [OPEN_ACL_UNSAFE, FOREIGN, [*OURS, *FOREIGN], HIDDEN], ids=in_words)
def test_what_others_have_rights_in_is_closed_and_what_is_ours_is_left_alone(theirs: list[ACL]) -> None:
    client = nodes(theirs, "/braidmq/c/topics", locked=False)
    acls = NodeAcls("/braidmq", "/braidmq/c", CLOSED)
    assert not change(client, acls)
    assert client.acls["/braidmq/c/topics"] == OURS and client.set_count == 1
    assert not change(client, acls, session=2)
    assert client.set_count == 1


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (FOREIGN, "ip:10.0.0.0/8 rw"),
        ([*OURS, *OPEN_ACL_UNSAFE], "digest:braid cdrwa, world:anyone cdrwa"),
        (HIDDEN, "hidden from it"),
    ],
)
def test_a_broker_does_not_start_with_what_it_may_not_close_and_one_that_runs_tells_it(
    theirs: list[ACL], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = "/braidmq/c/topics/t"
    client, acls = nodes(theirs, path, locked=True), NodeAcls("/braidmq", "/braidmq/c", CLOSED)
    for _ in range(2):
        with pytest.raises(NotAuthorized, match=f"node {path}, .*: its ACL is {words}; delete the node"):
            change(client, acls)
    client.acls[path] = OURS
    assert not change(client, acls)
    client.acls[path] = theirs
    assert not change(client, acls, session=2), "others must not stop a broker that runs"
    assert "zookeeper_node_foreign" in caplog.text and words in caplog.text


@pytest.mark.parametrize(("path", "access"), [("/braidmq", CLOSED), ("/braidmq/c/topics", OPENING)])
def test_a_broker_starts_with_a_folder_of_an_administrator_and_while_nodes_are_open(
    path: str, access: ZooKeeperAccess
) -> None:
    client = nodes(FOREIGN, path, locked=True)
    assert not change(client, NodeAcls("/braidmq", "/braidmq/c", access))
    assert client.acls[path] == FOREIGN
