"""The store that the brokers of a cluster share, with every version of every topic.json on it.

`arguments` are what `mq serve` needs to use it; an S3 store may be reached through a proxy's port.
"""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import boto3
from botocore.config import Config
from ulid import ULID

from filer import keys
from filer.topic.topic_state import TopicState
from tests.support.store.object_faults import DirectoryObjects, Objects, S3Objects
from tests.support.store.s3_faults import S3Faults
from tests.support.store.s3_server import S3_ENVIRONMENT, s3_server
from tests.support.topic.topic_history import TopicHistory

POLL_SECONDS = 0.002
LOOKS_BETWEEN_LISTINGS = 25
"""To look for new topics takes longer than to see whether the records of those that are known have changed."""
PREFIX = "some/prefix"


class SharedStore(Protocol):
    """A store that outlives the brokers. Entering the context creates it."""

    environment: dict[str, str]

    @property
    def port(self) -> int | None:
        """Its port; None if there is no network."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def arguments(self, port: int | None) -> list[str]:
        """Flags of `mq serve`, for a store reached at that port."""
        ...

    def topic_histories(self) -> list[TopicHistory]:
        """All versions so far of the record of every topic."""
        ...

    def topic_state(self, topic: str) -> TopicState:
        """The current record of a topic."""
        ...

    def objects(self) -> Objects:
        """Its objects, as whoever runs the store can reach and damage them."""
        ...


class SharedDirectory:
    """A directory, watched by a thread. It may miss a version that exists only for a moment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment: dict[str, str] = {}
        self._histories: dict[str, TopicHistory] = {}
        # Of each record what told it last from the versions before: another version is another file.
        self._records: dict[Path, tuple[int, int] | None] = {}
        self._looking = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="topic-watcher", daemon=True)

    @property
    def port(self) -> None:
        """Always None."""
        return

    def __enter__(self) -> Self:
        self.root.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def arguments(self, port: int | None) -> list[str]:
        """Flags of `mq serve`."""
        assert port is None, "a directory is not reached over a network"
        return ["--store", self.root.absolute().as_uri()]

    def topic_histories(self) -> list[TopicHistory]:
        """All versions that the thread has seen."""
        self._list()
        self._look()
        return list(self._histories.values())

    def topic_state(self, topic: str) -> TopicState:
        """Read from the directory."""
        return TopicState.from_json((self.root / keys.topic(topic)).read_bytes())

    def objects(self) -> Objects:
        """Its files."""
        return DirectoryObjects(self.root)

    def _watch(self) -> None:
        looks = 0
        while not self._stop.wait(POLL_SECONDS):
            if looks % LOOKS_BETWEEN_LISTINGS == 0:
                self._list()
            looks += 1
            self._look()

    def _list(self) -> None:
        with self._looking:
            for path in self.root.glob(f"{keys.TOPICS}*/topic.json"):
                self._records.setdefault(path, None)

    def _look(self) -> None:
        with self._looking:
            for path, known in self._records.items():
                with contextlib.suppress(FileNotFoundError):
                    found = path.stat()
                    # Before it is read: if another one takes its place meanwhile, that is read again.
                    if (now := (found.st_ino, found.st_mtime_ns)) != known:
                        topic = path.parent.name
                        self._histories.setdefault(topic, TopicHistory(topic)).record(path.read_bytes())
                        self._records[path] = now


class S3Bucket:
    """A bucket at an S3 server of its own, which keeps every version of every object. `faults` make it fail."""

    def __init__(self) -> None:
        self.environment = dict(S3_ENVIRONMENT)
        self.endpoint = ""
        self._bucket = f"test-{ULID()}".lower()
        self._histories: dict[str, TopicHistory] = {}
        self._read: dict[str, set[str]] = {}
        self._stack = contextlib.ExitStack()
        self._made: Any = None

    @property
    def port(self) -> int:
        """Where the server listens."""
        return int(self.endpoint.rpartition(":")[2])

    @property
    def faults(self) -> S3Faults:
        """The faults of the server, which affect all brokers."""
        return S3Faults(self.endpoint)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as starting:
            self.endpoint = starting.enter_context(s3_server())
            client = self._client()
            client.create_bucket(Bucket=self._bucket)
            client.put_bucket_versioning(Bucket=self._bucket, VersioningConfiguration={"Status": "Enabled"})
            self._stack = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def arguments(self, port: int | None) -> list[str]:
        """Flags of `mq serve`."""
        endpoint = f"http://127.0.0.1:{port or self.port}"
        return ["--store", f"s3://{self._bucket}/{PREFIX}", "--s3-endpoint", endpoint, "--s3-addressing", "path"]

    def topic_histories(self) -> list[TopicHistory]:
        """All versions ever. Versions read by an earlier call are not read again."""
        client = self._client()
        for topic in self._topics(client):
            key, read = f"{PREFIX}/{keys.topic(topic)}", self._read.setdefault(topic, set())
            # The server goes through all that it holds to list the versions of one key.
            if client.head_object(Bucket=self._bucket, Key=key)["VersionId"] in read:
                continue
            history = self._histories.setdefault(topic, TopicHistory(topic))
            # Listed from the newest to the oldest; a history goes the other way.
            for version in reversed(list(self._versions(client, key))):
                if version not in read:
                    history.record(client.get_object(Bucket=self._bucket, Key=key, VersionId=version)["Body"].read())
                    read.add(version)
        return list(self._histories.values())

    def topic_state(self, topic: str) -> TopicState:
        """Read from the bucket."""
        fetched = self._client().get_object(Bucket=self._bucket, Key=f"{PREFIX}/{keys.topic(topic)}")
        return TopicState.from_json(fetched["Body"].read())

    def objects(self) -> Objects:
        """The objects of the bucket."""
        return S3Objects(self._client(), self._bucket, PREFIX)

    def _topics(self, client: Any) -> Iterator[str]:
        pages = client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket, Prefix=f"{PREFIX}/{keys.TOPICS}", Delimiter="/"):
            for folder in page.get("CommonPrefixes", ()):
                yield folder["Prefix"].split("/")[-2]

    def _versions(self, client: Any, key: str) -> Iterator[str]:
        pages = client.get_paginator("list_object_versions")
        for page in pages.paginate(Bucket=self._bucket, Prefix=key):
            yield from (entry["VersionId"] for entry in page.get("Versions", ()))

    def _client(self) -> Any:
        """One for all threads: to make one takes as long as a hundred requests."""
        if self._made is None:
            self._made = self._new_client()
        return self._made

    def _new_client(self) -> Any:
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=S3_ENVIRONMENT["AWS_REGION"],
            aws_access_key_id=S3_ENVIRONMENT["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=S3_ENVIRONMENT["AWS_SECRET_ACCESS_KEY"],
            config=Config(s3={"addressing_style": "path"}, connect_timeout=10, read_timeout=30),
        )
