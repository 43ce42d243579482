"""Opens a directory as a store, by its URL or by its path."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

from filer.clock import Clock
from filer.errors import InvalidInput
from filer.stores.local.local_store import LocalStore
from filer.stores.store_address import StoreAddress


def open_local(address: StoreAddress, clock: Clock) -> LocalStore:
    """The store at `file:///directory`. Raises `InvalidInput` and `StoreRefused`."""
    parts = urlsplit(address.url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise InvalidInput(
            f"{address.url!r} is not the URL of a directory: write file:///directory, with three slashes"
        )
    return LocalStore(Path(unquote(parts.path)), clock=clock, tidies_up=address.tidies_up)


def open_path(address: StoreAddress, clock: Clock) -> LocalStore:
    """The store at a directory's path, which may begin with `~`. Raises `StoreRefused`."""
    return LocalStore(Path(address.url).expanduser(), clock=clock, tidies_up=address.tidies_up)
