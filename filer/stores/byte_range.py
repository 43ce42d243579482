"""The bytes of an object that a read asks for."""


def resolve_range(start: int, stop: int | None, size_bytes: int) -> tuple[int, int]:
    """The range `[start, stop)` within an object of that size, as two offsets from its start.

    A negative `start` counts from the end. The result is cut to what lies within the object.
    """
    first = max(0, size_bytes + start) if start < 0 else min(start, size_bytes)
    last = size_bytes if stop is None else min(stop, size_bytes)
    return first, max(first, last)
