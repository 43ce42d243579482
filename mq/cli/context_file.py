"""The file with a user's contexts: names for brokers, and for the files that connections to them need.

    current = "production"

    [context.production]
    url = "https://broker-1.example.org:8080"
    token_file = "/home/ada/ada.token"
    ca = "/home/ada/ca.pem"

It has no secrets, only the names of files that have them.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from filer.clock import SystemClock
from filer.errors import InvalidInput
from filer.nearest import unknown_name

MOST_BYTES = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_FOLDER, _FILE = "braidmq", "contexts.toml"


@dataclass(frozen=True, slots=True)
class Connection:
    """The content of one context. File names are absolute: a context is used from anywhere."""

    url: str
    token_file: str | None = None
    ca: str | None = None
    client_cert: str | None = None
    client_key: str | None = None

    def given(self) -> dict[str, str]:
        """The values that are set, by name."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts of a user, and the name of the one that is used unless another is named."""

    by_name: Mapping[str, Connection] = field(default_factory=dict)
    current: str | None = None

    def find(self, name: str) -> Connection:
        """The context of that name. Raises `InvalidInput`."""
        if name in self.by_name:
            return self.by_name[name]
        if not self.by_name:
            raise InvalidInput(f"there is no context {name!r:.100}, and no other one: mq context add makes one")
        raise InvalidInput(unknown_name("context", name, self.by_name))

    def with_one(self, name: str, connection: Connection) -> "Contexts":
        """These and that one, in place of one of the same name. Raises `InvalidInput` for a name that is not valid."""
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f"the name of a context has 1 to 100 of the characters A-Z a-z 0-9 . _ -, not {name!r:.120}"
            )
        return replace(self, by_name={**self.by_name, name: connection})

    def without(self, name: str) -> "Contexts":
        """These without that one. Raises `InvalidInput`."""
        self.find(name)
        left = {each: found for each, found in self.by_name.items() if each != name}
        return Contexts(left, None if self.current == name else self.current)

    def using(self, name: str | None) -> "Contexts":
        """These, with that one as the current one, or none. Raises `InvalidInput`."""
        if name is not None:
            self.find(name)
        return replace(self, current=name)

    def text(self) -> str:
        """The text of the file."""
        lines = [] if self.current is None else [f"current = {_quoted(self.current)}", ""]
        for name, connection in self.by_name.items():
            lines.append(f"[context.{_quoted(name)}]")
            lines += [f"{key} = {_quoted(value)}" for key, value in connection.given().items()]
            lines.append("")
        return "\n".join(lines)


def contexts_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The file of a user's contexts: in the folder for configuration, by the XDG specification."""
    folder = environment.get("XDG_CONFIG_HOME", "")
    # By the specification, relative paths are ignored.
    return (Path(folder) if Path(folder).is_absolute() else Path.home() / ".config") / _FOLDER / _FILE


def read_contexts(path: Path) -> Contexts:
    """The contexts of a file; none if there is no file. Raises `InvalidInput`, which names the file, and `OSError`."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return Contexts()
    except PermissionError:
        # For example, the home of another user, which `setpriv` and `sudo -E` leave in the environment: it is not ours.
        if os.access(path, os.F_OK):
            raise
        return Contexts()
    try:
        return _parsed(text)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from error


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Write these contexts in place of those before, whole or not at all. Only the user can read them."""
    # Imported here: most commands only read.
    from mq.security.written_files import write_replacing

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_replacing(path, contexts.text(), mode=0o600, clock=SystemClock())


def checked_url(url: str) -> str:
    """An address, or several. Raises `InvalidInput` for one with a password, which would be stored."""
    for each in url.split(","):
        parts = urlsplit(each.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInput(f"an address has the form http://host:port or https://host, not {each.strip()!r:.200}")
        if parts.username is not None or parts.password is not None:
            raise InvalidInput(
                "an address with a name and a password in it is not kept: put it into BRAIDMQ_URL, or name a token file"
            )
    return url


def _parsed(text: bytes) -> Contexts:
    # Imported here: most users have no such file.
    import tomllib

    if len(text) > MOST_BYTES:
        raise InvalidInput(f"it has more than {MOST_BYTES} bytes")
    try:
        found = tomllib.loads(text.decode())
    except ValueError as error:  # also for integers without end, which are no TOMLDecodeError
        raise InvalidInput(f"it is no TOML: {error}") from error
    current, tables = found.pop("current", None), found.pop("context", {})
    if found:
        raise InvalidInput(unknown_name("setting", next(iter(found)), ["current", "context"]))
    if not isinstance(tables, dict) or not (current is None or isinstance(current, str)):
        raise InvalidInput('it needs current = "NAME" and tables [context.NAME]')
    contexts = Contexts()
    for name, table in tables.items():
        contexts = contexts.with_one(name, _connection(name, table))
    return replace(contexts, current=current)


def _connection(name: str, table: Any) -> Connection:
    names = [each.name for each in fields(Connection)]
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise InvalidInput(f"context {name!r:.100} has to be a table of texts")
    for key in table:
        if key not in names:
            raise InvalidInput(f"context {name!r:.100}: {unknown_name('setting', key, names)}")
    if "url" not in table:
        raise InvalidInput(f"context {name!r:.100} has no url")
    return Connection(**table)


def _quoted(text: str) -> str:
    """A text of TOML: JSON's escapes are TOML's as well, except those of halves of characters."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
