"""Where a topic is stored, as other engines have to be told."""

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

    `group` is the topic group in whose files its messages are; its own name if it is one. `starts` has the first offset
    that is kept of each segment of the record, for engines that cannot read the record themselves.
    """

    topic: str
    store: StoreAddress
    key_type: str
    value_type: str
    group: str | None = None
    starts: Mapping[int, int] = field(default_factory=dict)

    @property
    def record(self) -> str:
        """The topic's record: which segments there are, and where each starts. A path, or an address s3://."""
        return f"{self.store.url}/{keys.topic(self.group or self.topic)}"

    @property
    def folder(self) -> str:
        """The folder of its segments: a path, or an address that begins with s3://."""
        return f"{self.store.url}/{keys.segments_folder(self.group or self.topic)}".rstrip("/")

    @property
    def member(self) -> str | None:
        """Whose rows of a topic group are meant; None if all of the files are."""
        return None if self.group in (None, self.topic) else self.topic

    @property
    def columns(self) -> list[str]:
        """The columns to show. A topic group tells of each message to which of its topics it belongs."""
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
    """Where the topic is, from any of its files: on S3 its signed address tells the endpoint and the region."""
    return StoredTopic(topic, store_of_file(group or topic, file), key_type, value_type, group, starts or {})
