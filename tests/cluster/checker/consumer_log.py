"""The file that a consumer process writes, one line each for a start, a message it got, or a marker to resume from.

Whoever reads the file takes whole lines only, so a line that a SIGKILL has torn was never written.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from tests.cluster.checker.history import Found


@dataclass(frozen=True, slots=True)
class Began:
    """A process started at the marker after the first `count` messages in the file."""

    behind: int
    at_seconds: float


@dataclass(frozen=True, slots=True)
class Saved:
    """The marker after the first `count` messages in the file."""

    behind: int
    marker: str


Line = Began | Found | Saved
_LINE: TypeAdapter[Line] = TypeAdapter(Line)


def written(line: Line) -> bytes:
    """The line in the file."""
    return _LINE.dump_json(line) + b"\n"


class ConsumerLog:
    """The file of one consumer, read while it grows. `read_bytes` is the end of the last complete line."""

    def __init__(self, path: Path) -> None:
        self.path, self.read_bytes = path, 0

    def read_on(self) -> list[Line]:
        """The complete lines added since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self.read_bytes)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.read_bytes += len(whole)
        return [_LINE.validate_json(line) for line in whole.splitlines()]
