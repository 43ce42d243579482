"""Free ports, for programs that cannot choose one themselves."""

import socket

from filer.clock import Clock

# Below the range for outgoing connections: no connection takes such a port by chance before it is used.
_FIRST, _LAST = 20_000, 32_767
_TRIES = 1000


def free_port(clock: Clock) -> int:
    """Return a port of this machine on which no program listens. Raises `OSError` if there is none."""
    for _ in range(_TRIES):
        port = _FIRST + int.from_bytes(clock.entropy(4), "big") % (_LAST - _FIRST + 1)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port between {_FIRST} and {_LAST}")
