"""Each object of a topic is deleted, cut short or has a bit flipped: the check of the whole topic names it."""

import asyncio
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from filer import keys
from filer.clock import SystemClock
from filer.keys import FileName
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, recover_index
from filer.segment.snapshot_format import to_snapshot
from filer.stores.local.local_store import LocalStore
from filer.topic.catalogue import Catalogue
from filer.verification.stored_topic import verify_cluster, verify_topic
from filer.verification.verdict import Verdict
from tests.support.topic.segment_files import append
from tests.support.topic.stored_topic import TOPIC, store_topic


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sealed segments, one with a snapshot, and an open one."""
    root = tmp_path_factory.mktemp("stored")
    asyncio.run(_store(root))
    return root


async def _store(root: Path) -> None:
    await store_topic(root, sealed={0: [3, 2, 2], 1: [4, 1]}, still_open=[2, 2, 2])
    store = LocalStore(root, clock=SystemClock())
    index = await recover_index(store, SegmentRef(TOPIC, 0))
    await store.create(keys.index_snapshot(TOPIC, 0), to_snapshot(index))
    await store.close()


@pytest.fixture
def root(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored, tmp_path / "copy"))


async def verdicts(root: Path) -> list[Verdict]:
    store = LocalStore(root, clock=SystemClock())
    try:
        catalogue = Catalogue(store, SystemClock())
        return [each async for each in verify_topic(store, catalogue, TOPIC)] + [
            each async for each in verify_cluster(store)
        ]
    finally:
        await store.close()


def segment_file(segment: int, base: int) -> str:
    return keys.segment_file(TOPIC, segment, FileName(base))


ALL_FILES = [(0, 0), (0, 3), (0, 5), (0, 7), (1, 0), (1, 4), (1, 5), (2, 0), (2, 2), (2, 4)]
OBJECTS = [
    keys.CLUSTER,
    keys.topic(TOPIC),
    keys.index_snapshot(TOPIC, 0),
    *(segment_file(segment, base) for segment, base in ALL_FILES),
]


async def test_a_whole_topic_is_sound(root: Path) -> None:
    found = await verdicts(root)
    assert {each.key for each in found} == {*OBJECTS}
    assert len(found) == len(OBJECTS)
    assert all(each.condition == "ok" for each in found), found


def damages() -> Iterator[tuple[str, str]]:
    for key in OBJECTS:
        for kind in ("flipped", "cut", "deleted"):
            # What names cannot show (docs/reliability.md): the newest file of an open segment, a snapshot, which only
            # saves work. Both records of a cluster tell of each other; here there is one, as of the version before.
            unseen = kind == "deleted" and key in (segment_file(2, 4), keys.index_snapshot(TOPIC, 0))
            if not unseen and not (key == keys.CLUSTER and kind == "flipped"):
                yield key, kind


@pytest.mark.parametrize(("key", "kind"), [*damages()])
async def test_what_is_wrong_is_named(root: Path, key: str, kind: str) -> None:
    path, chance = root / key, random.Random(f"{kind} {key}")
    data = bytearray(path.read_bytes())
    if kind == "deleted":
        path.unlink()
    elif kind == "cut":
        path.write_bytes(data[: chance.randrange(len(data))])
    else:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
    wrong = {each.key: each for each in await verdicts(root) if not each.is_sound}
    assert list(wrong) == [key]
    assert wrong[key].condition == ("missing" if kind == "deleted" else "damaged")
    assert wrong[key].why


async def test_a_file_that_another_writer_put_in_its_place_breaks_the_chain(root: Path) -> None:
    """It is whole in itself, and of the same segment and offsets."""
    other = root.parent / "other"
    other.mkdir()
    store = LocalStore(other, clock=SystemClock())
    index = SegmentIndex()
    for _ in range(3):
        await append(store, SegmentRef(TOPIC, 2), index, 2, padding=b"of another life")
    await store.close()
    shutil.copy(other / segment_file(2, 2), root / segment_file(2, 2))
    wrong = [each for each in await verdicts(root) if not each.is_sound]
    assert [each.key for each in wrong] == [segment_file(2, 2), segment_file(2, 4)]
    assert all("was not written behind" in each.why for each in wrong)


async def test_a_topic_that_never_was_has_no_objects(root: Path) -> None:
    store = LocalStore(root, clock=SystemClock())
    try:
        assert [each async for each in verify_topic(store, Catalogue(store, SystemClock()), "none")] == []
    finally:
        await store.close()
