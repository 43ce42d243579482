"""A broker's local directory as seen from its own machine: files of a load are written there without passing by it."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import anyio.to_thread
import orjson

from braidmq.models import ReservedLoad
from filer import keys
from filer.clock import Clock
from filer.local_store import LocalStore


async def find_store_folder(uri: str, key: str, topic: str, reserved: ReservedLoad, clock: Clock) -> LocalStore | None:
    """The directory that holds the key's object at that URI, if it is the broker's and we may write to it; else None.

    A path of the same name on another machine is another directory: only one whose record of the topic has this very
    reservation is taken.
    """
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc or not path.endswith(f"/{key}"):
        return None
    root = Path(path.removesuffix(f"/{key}"))
    return await anyio.to_thread.run_sync(_opened, root, topic, reserved, clock)


def _opened(root: Path, topic: str, reserved: ReservedLoad, clock: Clock) -> LocalStore | None:
    try:
        loads = orjson.loads((root / keys.topic(topic)).read_bytes())["loads"]
        if not any(_is_same(load, reserved) for load in loads) or not _is_ours(root):
            return None
        return LocalStore(root, clock=clock)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_same(load: Any, reserved: ReservedLoad) -> bool:
    first = reserved.segments[0].segment
    return load["id"] == reserved.load and load["first_segment"] == first and not load["abandoned"]


def _is_ours(root: Path) -> bool:
    """What we write, the broker must be able to delete again."""
    return root.stat().st_uid == os.geteuid() and os.access(root, os.W_OK)
