"""A reference to a segment file: small, and picklable for Spark tasks."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from braidmq.models import SegmentFile


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file with the messages `[start, stop)`: at a path that this machine may see, or at a presigned address."""

    uri: str
    url: str | None
    start: int
    stop: int
    size_bytes: int

    @classmethod
    def of(cls, file: SegmentFile) -> "FileRef":
        """From an entry of a broker's list."""
        return cls(file.uri, file.url, file.base_offset, file.end_offset, file.bytes)

    @property
    def path(self) -> Path | None:
        """Its path, if it is in a directory."""
        parts = urlsplit(self.uri)
        return Path(unquote(parts.path)) if parts.scheme == "file" else None
