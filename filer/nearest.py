"""The nearest known name to a misspelt one, for errors that help."""

import difflib
from collections.abc import Iterable


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """One sentence that refuses `name` and says which known one is nearest, else which there are."""
    choices = sorted(known)
    near = difflib.get_close_matches(name, choices, n=1, cutoff=0.5)
    shown = name if len(name) <= 80 else name[:80] + "…"
    if near:
        return f"unknown {what} {shown!r}: did you mean {near[0]!r}?"
    return f"unknown {what} {shown!r}: known are {', '.join(choices) or 'none'}"
