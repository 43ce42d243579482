"""What the kernel reports of the two sockets of a connection within this machine, and which user made the client's."""

from typing import NamedTuple

ESTABLISHED, FIN_WAIT_1, FIN_WAIT_2, CLOSE_WAIT = 1, 4, 5, 8
_OF_CLIENTS = frozenset({ESTABLISHED, FIN_WAIT_1, FIN_WAIT_2})
_OF_OURS = frozenset({ESTABLISHED, CLOSE_WAIT})


class End(NamedTuple):
    """An address of a socket: `host` is 4 or 16 bytes."""

    host: bytes
    port: int


class Side(NamedTuple):
    """A socket: its state, the user that made it, and its inode, which is 0 once no process has it open."""

    state: int
    user: int
    inode: int


def user_of(client: Side | None, ours: Side | None, client_again: Side | None) -> int | None:
    """Return the user that made the client's socket, which was read before and after ours; None if unproved.

    - A socket that no process has open any more is reported as root's. So a client that sends a request and closes at
      once would pass for root. A closed socket is never opened again: if the later answer is about an open socket, so
      was the earlier one.
    - The address of a client that is gone may be another client's by now. As long as our side stands, only its client
      can be connected to it from there. A socket that only tries to connect proves nothing, nor does one that listens.
    """
    if client is None or ours is None or client_again is None or client.user != client_again.user:
        return None
    if client.state not in _OF_CLIENTS or client_again.state not in _OF_CLIENTS or ours.state not in _OF_OURS:
        return None
    return client.user if client.inode and ours.inode and client.inode == client_again.inode else None
