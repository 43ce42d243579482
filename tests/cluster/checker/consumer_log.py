"""What a consumer process writes down, a line each: that it begins, the messages it is given, markers to go on from.

Whoever reads the file takes whole lines only, so a line that a SIGKILL has torn was never written.
"""

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from tests.cluster.checker.history import Found


@dataclass(frozen=True, slots=True)
class Began:
    """A process began at the marker behind so many of the messages in the file."""

    behind: int
    at_seconds: float


@dataclass(frozen=True, slots=True)
class Saved:
    """The marker behind so many of the messages in the file."""

    behind: int
    marker: str


Line = Began | Found | Saved
_LINE: TypeAdapter[Line] = TypeAdapter(Line)


def written(line: Line) -> bytes:
    """The line as it stands in the file."""
    return _LINE.dump_json(line) + b"\n"


class ConsumerLog:
    """The file of one consumer, read on as it grows. `read_bytes` is where the last whole line ended."""

    def __init__(self, path: Path) -> None:
        self.path, self.read_bytes = path, 0

    def read_on(self) -> list[Line]:
        """The whole lines that were not there at the last look."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self.read_bytes)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.read_bytes += len(whole)
        return [_LINE.validate_json(line) for line in whole.splitlines()]
