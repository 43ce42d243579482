"""Where a topic is stored, as other engines have to be told."""

from dataclasses import dataclass

from braidmq import SegmentFile
from braidmq.read.store_of_file import store_of_file
from filer import keys
from filer.stores.store_address import StoreAddress


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic with the store that holds its files. `key_type` and `value_type` are those of its configuration."""

    topic: str
    store: StoreAddress
    key_type: str
    value_type: str

    @property
    def folder(self) -> str:
        """The folder of its segments: a path, or an address that begins with s3://."""
        return f"{self.store.url}/{keys.segments_folder(self.topic)}".rstrip("/")

    @property
    def is_on_s3(self) -> bool:
        """Whether the store is a bucket. Else it is a directory."""
        return self.store.url.startswith("s3://")


def stored_topic(topic: str, file: SegmentFile, *, key_type: str, value_type: str) -> StoredTopic:
    """Where the topic is, from any of its files: on S3 its signed address tells the endpoint and the region."""
    return StoredTopic(topic, store_of_file(topic, file), key_type, value_type)
