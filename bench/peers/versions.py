"""Where peers are kept, and at which versions: `versions.toml` is the one place for them."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / ".peers"
"""Git ignores it."""


def versions() -> dict[str, Any]:
    """By peer."""
    return tomllib.loads(Path(__file__).with_name("versions.toml").read_text("utf-8"))


def said() -> Sequence[str]:
    """The peers and their versions, for people."""
    pinned = versions()
    server = pinned["nats"]["server"].rpartition("@")[2].removeprefix("v")
    return [f"Kafka {pinned['kafka']['version']}", f"NATS {server}", *pinned["python"]["packages"]]
