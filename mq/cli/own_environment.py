"""Variables that this process sets for its own libraries. Commands of users do not get them."""

import os

_OWN = {
    # Pydantic would search all installed packages for plugins. There are none.
    "PYDANTIC_DISABLE_PLUGINS": "1",
    # NumPy's algebra, which this program does not use, would start threads that wait actively at first.
    "OPENBLAS_NUM_THREADS": "1",
}
_set: list[str] = []


def set_own_variables() -> None:
    """Set those that are not set. Call this before the libraries are imported: they look once."""
    _set.extend(name for name in _OWN if name not in os.environ)
    os.environ.update({name: _OWN[name] for name in _set})


def given_environment() -> dict[bytes, bytes]:
    """The environment that this process got."""
    return {name: value for name, value in os.environb.items() if name.decode(errors="replace") not in _set}
