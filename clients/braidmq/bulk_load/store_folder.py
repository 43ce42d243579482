"""A broker's local directory, as a client on the same machine sees it: bulk loads write their files there directly."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio.to_thread
import orjson

from filer import keys
from filer.clock import Clock
from filer.stores.local.local_store import LocalStore


async def find_store_folder(uri: str, key: str, topic: str, load: str, segment: int, clock: Clock) -> LocalStore | None:
    """Return the broker's directory that has the key's object at that URI, if this user may write to it; else None.

    On another machine, a path of the same name is a different directory. So a directory counts only if its record of
    the topic has reserved this segment for this very load.
    """
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc or not path.endswith(f"/{key}"):
        return None
    root = Path(path.removesuffix(f"/{key}"))
    return await anyio.to_thread.run_sync(_open_if_reserved, root, topic, load, segment, clock)


def _open_if_reserved(root: Path, topic: str, load: str, segment: int, clock: Clock) -> LocalStore | None:
    try:
        loads = orjson.loads((root / keys.topic(topic)).read_bytes())["loads"]
        if not any(_has_reserved(each, load, segment) for each in loads) or not _is_ours(root):
            return None
        return LocalStore(root, clock=clock)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _has_reserved(record: Any, load: str, segment: int) -> bool:
    reserved = range(record["first_segment"], record["first_segment"] + len(record["starts"]))
    return record["id"] == load and segment in reserved and not record["abandoned"]


def _is_ours(root: Path) -> bool:
    """Whether we may write there, and the broker may delete what we write."""
    return root.stat().st_uid == os.geteuid() and os.access(root, os.W_OK)
