"""Error texts for a misspelt name, which suggest the nearest known one."""

import difflib
from collections.abc import Iterable

SHOWN_CHARS = 80


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """One sentence that refuses `name` and suggests the nearest known name, or lists all if none is near."""
    choices = sorted(known)
    # Comparing a name of megabytes would take minutes and gigabytes, and no known name is near to it.
    shown = name if len(name) <= SHOWN_CHARS else name[:SHOWN_CHARS] + "…"
    near = difflib.get_close_matches(shown, choices, n=1, cutoff=0.5)
    if near:
        return f"unknown {what} {shown!r}: did you mean {near[0]!r}?"
    return f"unknown {what} {shown!r}: known are {', '.join(choices) or 'none'}"
