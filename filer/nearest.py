"""The nearest known name to a misspelt one, for errors that help."""

import difflib
from collections.abc import Iterable

SHOWN_CHARS = 80


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """One sentence that refuses `name` and says which known one is nearest, else which there are."""
    choices = sorted(known)
    # Of a name of megabytes, comparing would take minutes and gigabytes; none that long is near to any.
    shown = name if len(name) <= SHOWN_CHARS else name[:SHOWN_CHARS] + "…"
    near = difflib.get_close_matches(shown, choices, n=1, cutoff=0.5)
    if near:
        return f"unknown {what} {shown!r}: did you mean {near[0]!r}?"
    return f"unknown {what} {shown!r}: known are {', '.join(choices) or 'none'}"
