"""From the address of a store, as a user writes it, to the store."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from filer.clock import Clock
from filer.errors import InvalidInput, StoreRefused
from filer.local_store import LocalStore
from filer.memory_store import MemoryStore
from filer.object_keys import check_prefix
from filer.s3_settings import AddressingStyle, S3Settings
from filer.store import Store

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_FORMS = "s3://bucket/prefix, file:///directory, a directory's path, or memory:"


def open_store(
    url: str,
    *,
    clock: Clock,
    endpoint_url: str | None = None,
    region: str | None = None,
    addressing_style: AddressingStyle = "auto",
    request_timeout_seconds: float = 60,
    pool_size: int = 50,
) -> Store:
    """The store at `s3://bucket/prefix`, `file:///directory`, a directory's path, or `memory:`.

    All but the clock is for S3 only. Raises `InvalidInput` where the address is none of these, and `StoreRefused`
    where a directory cannot be used.
    """
    match = _SCHEME.match(url)
    scheme = match[1].lower() if match else ""
    if scheme == "memory":
        return MemoryStore(clock=clock)
    if scheme == "s3":
        bucket, prefix = _bucket_and_prefix(url)
        settings = S3Settings(
            bucket,
            prefix=prefix,
            endpoint_url=endpoint_url,
            region=region,
            addressing_style=addressing_style,
            request_timeout_seconds=request_timeout_seconds,
            pool_size=pool_size,
        )
        return _open_s3(settings, clock)
    if scheme and scheme != "file":
        raise InvalidInput(f"{url!r} is no store that is known here: it takes {_FORMS}")
    return LocalStore(_directory(url) if scheme else _plain_path(url), clock=clock)


def _open_s3(settings: S3Settings, clock: Clock) -> Store:
    try:
        # Slow to import, and not there where only the client is installed.
        from filer.s3_store import S3Store
    except ModuleNotFoundError as error:
        raise InvalidInput(f"s3:// needs {error.name}: pip install 'braidmq[server]'") from error
    return S3Store(settings, clock=clock)


def _bucket_and_prefix(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    if not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidInput(f"{url!r} names no bucket plainly: write s3://bucket or s3://bucket/prefix")
    prefix = parts.path.strip("/")
    try:
        check_prefix(prefix)
    except StoreRefused as error:
        raise InvalidInput(f"{url!r}: {error}") from error
    return parts.netloc, prefix


def _directory(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise InvalidInput(f"{url!r} names no directory plainly: write file:///directory, with three slashes")
    return Path(unquote(parts.path))


def _plain_path(path: str) -> Path:
    if not path.strip():
        raise InvalidInput(f"the store's address is empty: it takes {_FORMS}")
    return Path(path).expanduser()
