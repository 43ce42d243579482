"""Damage from outside: it is done as told, on a directory and on S3, and undone without a trace."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from botocore.config import Config

from filer.clock import SystemClock
from filer.errors import ObjectNotFound
from filer.stores.local.local_store import LocalStore
from filer.stores.open_store import open_store
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress
from tests.support.store.object_faults import (
    DirectoryObjects,
    Manner,
    Objects,
    Past,
    S3Objects,
    by_kind,
    put_back,
    strike,
)
from tests.support.store.s3_server import S3_ENVIRONMENT

KEY = "topics/t/topic.json"
VERSIONS = [b"first", b"second, which is longer", b"third"]


@pytest.fixture(params=["directory", "s3"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Store, Objects]:
    if request.param == "directory":
        return LocalStore(tmp_path, clock=SystemClock()), DirectoryObjects(tmp_path)
    bucket, endpoint = request.getfixturevalue("s3_bucket"), request.getfixturevalue("s3_endpoint")
    store = open_store(StoreAddress(f"s3://{bucket}/prefix", endpoint), SystemClock())
    return store, S3Objects(s3_client(endpoint), bucket, "prefix")


def s3_client(endpoint: str) -> object:
    config = Config(s3={"addressing_style": "path"})
    return boto3.client("s3", endpoint_url=endpoint, region_name=S3_ENVIRONMENT["AWS_REGION"], config=config)


@pytest.fixture
async def written(world: tuple[Store, Objects]) -> "Iterator[tuple[Store, Objects, Past]]":
    """A topic.json in its third version, of which all versions were seen."""
    store, objects = world
    past = Past(objects)
    await store.create(KEY, VERSIONS[0], metadata={"braidmq-writer": "b"})
    past.remember()
    for data in VERSIONS[1:]:
        await store.replace(KEY, data, etag=(await store.head(KEY)).etag)
        past.remember()
    yield store, objects, past  # type: ignore[misc]
    await store.close()


CHECKS: dict[Manner, Callable[[bytes], bool]] = {
    "truncate": lambda data: VERSIONS[2].startswith(data) and len(data) < len(VERSIONS[2]),
    "flip": lambda data: sum((a ^ b).bit_count() for a, b in zip(data, VERSIONS[2], strict=True)) == 1,
    "older": lambda data: data in VERSIONS[:2],
}


@pytest.mark.parametrize("manner", CHECKS)
async def test_an_object_is_changed_and_put_back(written: tuple[Store, Objects, Past], manner: Manner) -> None:
    store, objects, past = written
    before = await store.head(KEY)
    damage = strike(objects, KEY, manner, random.Random(1), past)
    assert damage is not None and damage.kind == "topic.json" and damage.before == VERSIONS[2]
    assert CHECKS[manner]((await store.get(KEY)).data)
    assert put_back(objects, damage)
    assert (await store.get(KEY)).data == VERSIONS[2]
    assert (await store.head(KEY)).etag == before.etag


async def test_an_object_is_deleted_and_put_back(written: tuple[Store, Objects, Past]) -> None:
    store, objects, past = written
    damage = strike(objects, KEY, "delete", random.Random(1), past)
    with pytest.raises(ObjectNotFound):
        await store.get(KEY)
    assert objects.names() == []
    assert damage is not None and put_back(objects, damage)
    assert (await store.get(KEY)).data == VERSIONS[2]


async def test_what_somebody_has_written_since_stays(written: tuple[Store, Objects, Past]) -> None:
    store, objects, past = written
    damage = strike(objects, KEY, "older", random.Random(1), past)
    assert damage is not None
    await store.replace(KEY, b"fourth", etag=(await store.head(KEY)).etag)
    assert not put_back(objects, damage)
    assert (await store.get(KEY)).data == b"fourth"


async def test_objects_by_kind(world: tuple[Store, Objects]) -> None:
    store, objects = world
    names = {
        "cluster.json": "cluster/cluster.json",
        "settings.json": "cluster/settings.json",
        "history": "topics/t/history/00000000000000000000-00000000000000000000.json",
        "snapshot": "topics/t/index/0.snapshot",
        "segment file": "topics/t/segments/segment=0/00000000000000000000.parquet",
        "roll-up": "topics/t/segments/segment=0/00000000000000000000-00000000000000000002.parquet",
        "topic.json": KEY,
        "version mark": "topics/t/versions/00000000000000000003",
        "payload": "topics/t/uploads/u",
    }
    for key in (*names.values(), "topics/other/topic.json", "cluster/fence-check/x"):
        await store.create(key, b"{}")
    seal = "topics/t/segments/segment=0/00000000000000000002.parquet"
    await store.create(seal, b"PAR1...braidmq.sealed...PAR1")
    assert by_kind(objects, "t") == {**{kind: [key] for kind, key in names.items()}, "seal": [seal]}
    assert strike(objects, "cluster/fence-check/x", "delete", random.Random(1), Past(objects)) is None
    assert strike(objects, names["history"], "older", random.Random(1), Past(objects)) is None
    await store.close()
