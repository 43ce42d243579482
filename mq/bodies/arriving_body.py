"""A body of a known length, which is read from the socket directly to the place of its use.

The HTTP parser would hand out each piece as an object of its own: uvicorn would join them to the unread part, and the
endpoint would join them again. For a body of 1 MiB that was more work than everything else in the loop.
"""

import pyarrow as pa
from starlette.types import Scope

LEAST_BYTES = 64 * 1024
"""Smaller bodies arrive in one piece, or nearly: there is little to save."""
PIECE_BYTES = 256 * 1024
"""At most so much is read at once, as of everything else: limits are looked at between pieces."""
_EXTENSION = "braidmq.arriving_body"
_LEAST_ROOM_BYTES = 64 * 1024
_GROWTH = 4


class ArrivingBody:
    """The body of one request. The connection puts pieces in, the endpoint takes them out, both in the event loop.

    Room grows as bytes come, and never to more than `_GROWTH` times their size: a client that declares a large body and
    sends nothing of it makes the broker hold one piece.

    An endpoint that calls `keep` gets all of it at the end, as `whole`, without a copy. For others this is the part
    that they have not read yet, in the way of uvicorn's request: `len` is its size, and `bytes` takes it out.
    """

    def __init__(self, size_bytes: int) -> None:
        self.left_bytes = size_bytes
        self._room = memoryview(b"")
        self._taken_bytes = self._end = 0
        self._is_kept = False

    def offer_to(self, scope: Scope) -> None:
        """Put it into the scope, so that the endpoint of that request finds it."""
        scope.setdefault("extensions", {})[_EXTENSION] = self

    def free_room(self) -> memoryview:
        """Return where the next bytes go, at least one, and none behind the end of the body: those are another's."""
        wanted_bytes = min(self.left_bytes, PIECE_BYTES)
        if len(self._room) - self._end < min(wanted_bytes, _LEAST_ROOM_BYTES):
            self._make_room(0)
        return self._room[self._end : self._end + wanted_bytes]

    def arrived(self, size_bytes: int) -> None:
        """Note that so many bytes have come to `free_room`."""
        self._end += size_bytes
        self.left_bytes -= size_bytes

    def add(self, *pieces: memoryview) -> None:
        """Append pieces that came together with the bytes before the body."""
        came = [piece for piece in pieces if piece]
        if came:
            self._make_room(sum(map(len, came)))
        for piece in came:
            self._room[self._end : self._end + len(piece)] = piece
            self.arrived(len(piece))

    def drop(self, size_bytes: int) -> None:
        """Drop bytes that have come and that no endpoint reads any more, with all before them."""
        self.left_bytes -= size_bytes
        self._room, self._taken_bytes, self._end = memoryview(b""), 0, 0

    def keep(self) -> None:
        """Keep everything from now on: `bytes` only marks the present bytes as read."""
        self._is_kept = True

    @property
    def size_bytes(self) -> int:
        """How much of a kept body has been read."""
        return self._taken_bytes

    def whole(self) -> memoryview:
        """All that was read of a kept body."""
        return self._room[: self._taken_bytes]

    def __len__(self) -> int:
        return self._end - self._taken_bytes

    def __bytes__(self) -> bytes:
        if self._is_kept:
            self._taken_bytes = self._end
            return b""
        taken = bytes(self._room[: self._end])
        self._end = 0
        return taken

    def _make_room(self, size_bytes: int) -> None:
        """Make room for so many bytes, and more."""
        least_bytes = max(PIECE_BYTES, _GROWTH * (self._end + size_bytes))
        room = memoryview(pa.allocate_buffer(min(self._end + self.left_bytes, least_bytes))).cast("B")
        room[: self._end] = self._room[: self._end]
        self._room = room


def arriving_body(scope: Scope) -> ArrivingBody | None:
    """Return the body of a request, if it comes that way."""
    extensions = scope.get("extensions")
    return None if extensions is None else extensions.get(_EXTENSION)
