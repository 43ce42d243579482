"""A segment file as a task is told of it: small, and picklable."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from braidmq.models import SegmentFile


@dataclass(frozen=True, slots=True)
class FileRef:
    """The messages `[start, stop)` are in this file: at a path that this machine may see, or at a presigned address."""

    uri: str
    url: str | None
    start: int
    stop: int
    size_bytes: int

    @classmethod
    def of(cls, file: SegmentFile) -> "FileRef":
        """From what a broker listed."""
        return cls(file.uri, file.url, file.base_offset, file.end_offset, file.bytes)

    @property
    def path(self) -> Path | None:
        """Where it is, if it is in a directory."""
        parts = urlsplit(self.uri)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None
