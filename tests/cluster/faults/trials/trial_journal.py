"""What came of trials, a line of JSON each: a run that was interrupted goes on, and two processes make one table."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One trial. `damage` is None if there was nothing to damage, or somebody else was faster."""

    store: str
    seed: int
    number: int
    commit: str
    plan: str
    kind: str
    manner: str
    damage: str | None
    acknowledged: int
    told: bool
    invisible: bool
    complaints: tuple[str, ...]
    seconds: float


class Journal:
    """The entries in a file, in the order in which they came. Without a file they are only kept in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self.entries = [_entry(line) for line in lines if line.endswith("}")]

    def done(self, store: str, seed: int) -> set[int]:
        """The numbers of the trials that need not run again."""
        return {each.number for each in self.entries if (each.store, each.seed) == (store, seed)}

    def add(self, entry: Entry) -> None:
        """Write one down. Stopped in the middle of a line, the next run leaves that line out."""
        self.entries.append(entry)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(f"{json.dumps(vars(entry))}\n")


def _entry(line: str) -> Entry:
    fields: dict[str, Any] = json.loads(line)
    return Entry(**{**fields, "complaints": tuple(fields["complaints"])})
