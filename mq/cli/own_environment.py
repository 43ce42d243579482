"""Variables that this process sets for libraries of its own, and that commands of users do not get from it."""

import os

_OWN = {
    # Pydantic would look through all that is installed for plugins. There are none.
    "PYDANTIC_DISABLE_PLUGINS": "1",
    # NumPy's algebra, which nobody here uses, would start threads that first of all wait actively.
    "OPENBLAS_NUM_THREADS": "1",
}
_set: list[str] = []


def set_own_variables() -> None:
    """Set those that are not set. Do it before the libraries are imported: they look once."""
    _set.extend(name for name in _OWN if name not in os.environ)
    os.environ.update({name: _OWN[name] for name in _set})


def given_environment() -> dict[bytes, bytes]:
    """The environment as it was given to this process."""
    return {name: value for name, value in os.environb.items() if name.decode(errors="replace") not in _set}
