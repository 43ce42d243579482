"""Opens the store at an address that a user gives, by the scheme of its URL.

To add a store, make a folder beside `s3/` with a class that follows `Store`, and a function that opens it by a
`StoreAddress`. Register the function under its scheme in `_SCHEMES`. Then add the store to the fixture in
`tests/integration/filer/stores/test_store_contract.py`: its tests say what a store must do.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from filer.clock import Clock
from filer.errors import InvalidInput
from filer.stores.local.open_local import open_local, open_path
from filer.stores.memory_store import MemoryStore
from filer.stores.s3.open_s3 import open_s3
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress

Opener = Callable[[StoreAddress, Clock], Store]
"""Opens the store at an address. Raises `InvalidInput` for a URL it cannot use, and `StoreRefused`."""


@dataclass(frozen=True, slots=True)
class _Scheme:
    open: Opener
    example: str


# An opener imports slow or optional modules only when it is called.
_SCHEMES = {
    "s3": _Scheme(open_s3, "s3://bucket/prefix"),
    "file": _Scheme(open_local, "file:///directory"),
    "memory": _Scheme(lambda _, clock: MemoryStore(clock=clock), "memory:"),
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_FORMS = ", ".join(scheme.example for scheme in _SCHEMES.values()) + ", or a directory's path"


def open_store(address: StoreAddress, clock: Clock) -> Store:
    """The store at that address: a URL of a registered scheme, or a directory's path.

    Raises `InvalidInput` for any other address, and `StoreRefused` for a directory that cannot be used.
    """
    if not address.url.strip():
        raise InvalidInput(f"the store's address is empty: give {_FORMS}")
    match = _SCHEME.match(address.url)
    if match is None:
        return open_path(address, clock)
    scheme = _SCHEMES.get(match[1].lower())
    if scheme is None:
        raise InvalidInput(f"{address.url!r} has a scheme that no store here has: give {_FORMS}")
    return scheme.open(address, clock)
