"""Bodies of answers in pieces of bounded size, written to a connection without a copy."""

from collections.abc import Iterator, Sequence

from mq.forms.render import Part

PIECE_BYTES = 1024 * 1024
MOST_PARTS = 256
"""The system takes some more at once (1,024)."""
TOGETHER = "braidmq.together"
"""Among the extensions of a request: its server writes `Together` as it is."""


class Together:
    """Parts of a body that are sent as one piece: the body of one message of ASGI, for servers that know it."""

    __slots__ = ("parts", "size_bytes")

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts, self.size_bytes = parts, sum(map(len, parts))

    def __len__(self) -> int:
        return self.size_bytes


def pieces(body: Part) -> Iterator[memoryview]:
    """The body in pieces."""
    view = memoryview(body)
    for start in range(0, len(view), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]


def pieces_together(parts: Sequence[Part]) -> Iterator[Together]:
    """The parts in pieces: short parts go together, long ones in several pieces."""
    held: list[Part] = []
    room_bytes = PIECE_BYTES
    for part in parts:
        view = memoryview(part)
        while view:
            held.append(view[:room_bytes])
            room_bytes -= len(held[-1])
            view = view[len(held[-1]) :]
            if not room_bytes or len(held) == MOST_PARTS:
                yield Together(held)
                held, room_bytes = [], PIECE_BYTES
    if held:
        yield Together(held)
