"""Which bytes of an object a read means."""


def resolve_range(start: int, stop: int | None, size_bytes: int) -> tuple[int, int]:
    """The first byte and the byte after the last of `[start, stop)` in an object of that size.

    A negative `start` counts from the end; what lies outside the object is left out.
    """
    first = max(0, size_bytes + start) if start < 0 else min(start, size_bytes)
    last = size_bytes if stop is None else min(stop, size_bytes)
    return first, max(first, last)
