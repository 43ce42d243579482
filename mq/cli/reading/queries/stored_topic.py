"""The place of a topic's files, for queries of other engines."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from braidmq import SegmentFile
from braidmq.read.store_of_file import store_of_file
from filer import keys
from filer.stores.store_address import StoreAddress

COLUMNS = ["segment", "_offset", "_timestamp", "key", "value", "event_time", "headers", "_ref"]


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic with the store that holds its files. `key_type` and `value_type` are those of its configuration.

    `group` is the topic group whose files have its messages; its own name if it is one. `starts` has the first kept
    offset of each segment of the record, for engines that cannot read the record themselves.
    """

    topic: str
    store: StoreAddress
    key_type: str
    value_type: str
    group: str | None = None
    starts: Mapping[int, int] = field(default_factory=dict)

    @property
    def record(self) -> str:
        """The topic's record: its segments, and the start of each. A path, or an address s3://."""
        return f"{self.store.url}/{keys.topic(self.group or self.topic)}"

    @property
    def folder(self) -> str:
        """The folder of its segments: a path, or an address that begins with s3://."""
        return f"{self.store.url}/{keys.segments_folder(self.group or self.topic)}".rstrip("/")

    @property
    def member(self) -> str | None:
        """The member of a topic group whose rows count; None if all rows of the files count."""
        return None if self.group in (None, self.topic) else self.topic

    @property
    def columns(self) -> list[str]:
        """The columns to show. For a topic group one of them has the topic of each message."""
        return [*COLUMNS, "_topic"] if self.group == self.topic else COLUMNS

    @property
    def is_on_s3(self) -> bool:
        """Whether the store is a bucket. Else it is a directory."""
        return self.store.url.startswith("s3://")


def stored_topic(
    topic: str,
    file: SegmentFile,
    *,
    key_type: str,
    value_type: str,
    group: str | None = None,
    starts: Mapping[int, int] | None = None,
) -> StoredTopic:
    """The place of the topic, from any of its files: on S3 the signed address has the endpoint and the region."""
    return StoredTopic(topic, store_of_file(group or topic, file), key_type, value_type, group, starts or {})
