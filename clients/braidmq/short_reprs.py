"""How messages and iterators show themselves in a notebook or a log: values of megabytes are cut."""

import reprlib
from dataclasses import fields
from typing import Any

_LONGEST = 200
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _LONGEST
_SHORT.maxdict = _SHORT.maxlist = 20


def short_repr(item: Any) -> str:
    """The repr of a dataclass, with the middle of long fields left out."""
    shown = (f"{each.name}={_SHORT.repr(getattr(item, each.name))}" for each in fields(item) if each.repr)
    return f"{type(item).__name__}({', '.join(shown)})"
