"""`client.load` against real brokers, on a directory and on S3: whole, resumed, run again, refused."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import braidmq.bulk_load.file_uploads
import braidmq.bulk_load.load_source
import braidmq.bulk_load.loader
import braidmq.bulk_load.store_folder
from braidmq import AsyncClient, Client, FileTaken, InvalidArgument, LoadRefused, Message, TopicNotFound
from braidmq.bulk_load.store_folder import find_store_folder
from braidmq.models import ReservedLoad
from filer import keys
from filer.clock import SystemClock
from filer.keys import FileName
from filer.slots import slot_of
from filer.stores.local.local_store import LocalStore
from tests.support.broker.http_broker import HttpBroker, http_broker

ROWS = 5000
TABLE = pa.table(
    {
        "carrier": [f"c{row % 16}" for row in range(ROWS)],
        "text": [f"flight {row}" + "x" * 200 for row in range(ROWS)],
        "at": pa.array(range(ROWS), pa.timestamp("ms", "UTC")),
    }
)


@pytest.fixture
async def broker(broker_on_each_store: HttpBroker) -> HttpBroker:
    return broker_on_each_store


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[HttpBroker]:
    async with http_broker(LocalStore(tmp_path / "data", clock=SystemClock())) as made:
        yield made


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make several files for each segment."""
    monkeypatch.setattr(braidmq.bulk_load.load_source, "FILE_BYTES", 100_000)


async def check_all(client: AsyncClient, topic: str, expected: pa.Table = TABLE) -> None:
    """Check that each row is there once, and each key in order."""
    found = await client.read_table(topic)
    assert found.num_rows == expected.num_rows
    for key in set(expected["carrier"].to_pylist()):
        mine = [row["value"] for row in found.to_pylist() if row["key"] == key.encode()]
        wanted = [row["text"].encode() for row in expected.to_pylist() if row["carrier"] == key]
        assert mine == wanted


async def test_a_table(broker: HttpBroker) -> None:
    progress_calls: list[tuple[int, int]] = []
    async with AsyncClient(broker.url) as client:
        await client.create_topic("t", segments=3)
        done = await client.load(
            "t",
            TABLE,
            load="x",
            key="carrier",
            value="text",
            event_time="at",
            progress=lambda n, of: progress_calls.append((n, of)),
        )
        assert (done.load, done.messages, len(done.segments)) == ("x", ROWS, 3)
        assert progress_calls[-1] == (ROWS, ROWS) and len(progress_calls) > 6
        await check_all(client, "t")
        assert {row["event_time"] for row in (await client.read_table("t")).to_pylist()} == set(TABLE["at"].to_pylist())
        assert await client.load("t", TABLE, load="x", key="carrier", value="text") == done
        assert (await client.read_table("t")).num_rows == ROWS


async def test_who_follows_the_topic_has_each_message_once(local: HttpBroker) -> None:
    """A subscriber from before the load, and one that starts at a marker in the middle of it."""
    total = ROWS + 40
    async with AsyncClient(local.url) as client:
        await client.create_topic("t", segments=2)

        async def follow(marker: str | None = None, *, count: int = total) -> list[Message]:
            found: list[Message] = []
            async with asyncio.timeout(30):
                async for message in client.subscribe("t", from_=None if marker else "earliest", marker=marker):
                    found.append(message)
                    if len(found) == count:
                        break
            return found

        for row in range(20):
            await client.publish("t", f"before {row}", key=f"c{row % 16}")
        following = asyncio.create_task(follow())
        await client.load("t", TABLE, key="carrier", value="text", segments=3)
        for row in range(20):
            await client.publish("t", f"after {row}", key=f"c{row % 16}")
        found = await following
        assert len({message.id for message in found}) == total
        for key in range(16):
            values = [bytes(m.value).decode() for m in found if m.key == b"c%d" % key]
            kinds = [value.partition(" ")[0] for value in values]
            assert kinds == sorted(kinds, key=["before", "flight", "after"].index)
            wanted = [row["text"] for row in TABLE.to_pylist() if row["carrier"] == f"c{key}"]
            assert [value for value in values if value.startswith("flight")] == wanted
        rest = await follow(found[total // 2].marker, count=total - total // 2 - 1)
        assert {message.id for message in rest} == {message.id for message in found[total // 2 + 1 :]}


async def test_through_the_broker_where_its_directory_is_not_at_hand(
    local: HttpBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(braidmq.bulk_load.store_folder, "_is_ours", lambda root: False)
    async with AsyncClient(local.url) as client:
        await client.create_topic("t", segments=2)
        begun: list[str] = []
        payloads = local.broker.payloads
        assert payloads is not None
        create = payloads.create_from_stream

        async def creating(key: str, *arguments: Any, **settings: Any) -> str:
            begun.append(key)
            return await create(key, *arguments, **settings)

        monkeypatch.setattr(payloads, "create_from_stream", creating)
        await client.load("t", TABLE, load="x", key="carrier", value="text")
        assert len(begun) > 4
        await check_all(client, "t")


async def test_only_the_directory_with_this_reservation_is_written_to(local: HttpBroker, tmp_path: Path) -> None:
    """A directory of the same name on another machine would swallow the files."""
    async with AsyncClient(local.url) as client:
        await client.create_topic("t")
    answer = (await local.client.post("/v1/topics/t/loads", json={"segments": 1, "load": "x"})).json()
    reserved = ReservedLoad.model_validate(answer)
    key = f"{reserved.segments[0].prefix}{FileName(0)}"
    uri, clock = local.broker.store.uri(key), SystemClock()

    segment = reserved.segments[0].segment

    async def found(uri: str = uri, topic: str = "t", load: str = "x", segment: int = segment) -> bool:
        folder = await find_store_folder(uri, key, topic, load, segment, clock)
        if folder is not None:
            await folder.close()
        return folder is not None

    assert await found()
    assert not await found(load="y")
    assert not await found(segment=segment + 1)
    assert not await found(uri=uri.replace("/data/", "/elsewhere/"))
    assert not await found(uri=uri.replace("file://", "file://host"))
    assert not await found(uri="s3://bucket/" + key)
    assert not await found(topic="other")
    assert not (tmp_path / "elsewhere").exists()
    await local.client.delete("/v1/topics/t/loads/x")
    assert not await found()


async def test_files_and_folders(local: HttpBroker, tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    for part in range(4):
        pq.write_table(TABLE.slice(part * 1000, 1000), folder / f"part-{part}.parquet", row_group_size=300)
    pq.write_table(TABLE.slice(4000), tmp_path / "last.parquet")
    async with AsyncClient(local.url) as client:
        await client.create_topic("t")
        done = await client.load("t", [folder, str(tmp_path / "last.parquet")], key="carrier", value="text", segments=4)
        assert (done.messages, len(done.segments)) == (ROWS, 4)
        await check_all(client, "t")


async def test_blocking(local: HttpBroker) -> None:
    def work() -> int:
        with Client(local.url) as client:
            client.create_topic("t", value_type="json")
            done = client.load("t", TABLE.slice(0, 100), key="carrier")
            assert client.read_table("t").num_rows == 100
            return done.messages

    assert await asyncio.to_thread(work) == 100


async def test_an_interrupted_load_goes_on(broker: HttpBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends after some files, and one that ends before its commit is answered."""
    begin, begun = braidmq.bulk_load.file_uploads.FileUploads.start, 0

    async def breaking(self: Any, file: Any) -> None:
        nonlocal begun
        begun += 1
        if begun == 5:
            raise ConnectionError("the machine goes down")
        await begin(self, file)

    async with AsyncClient(broker.url) as client:
        await client.create_topic("t", segments=2)
        monkeypatch.setattr(braidmq.bulk_load.file_uploads.FileUploads, "start", breaking)
        with pytest.raises(ConnectionError):
            await client.load("t", TABLE, load="x", key="carrier", value="text")
        assert (await client.read_table("t")).num_rows == 0
        done = await client.load("t", TABLE, load="x", key="carrier", value="text")
        assert done.messages == ROWS
        await check_all(client, "t")


async def test_run_again_while_it_is_being_adopted(local: HttpBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run is gone while its transition runs: the second neither writes nor reserves anything."""
    put, begun, may_seal, looks = local.broker.store.create, asyncio.Event(), asyncio.Event(), 0

    async def sealing(key: str, *arguments: Any, **settings: Any) -> None:
        if "segment=0/" in key:
            begun.set()
            await may_seal.wait()
        await put(key, *arguments, **settings)

    find = local.broker.loads.find

    async def found(*about: str) -> Any:
        nonlocal looks
        looks += 1
        return await find(*about)

    monkeypatch.setattr(local.broker.store, "create", sealing)
    monkeypatch.setattr(braidmq.bulk_load.loader, "POLL_SECONDS", 0.01)
    async with AsyncClient(local.url) as client:
        await client.create_topic("t")
        first = asyncio.create_task(client.load("t", TABLE, load="x", key="carrier", value="text"))
        async with asyncio.timeout(20):
            await begun.wait()
            first.cancel()
            monkeypatch.setattr(local.broker.loads, "find", found)
            again = asyncio.create_task(client.load("t", TABLE, load="x", key="carrier", value="text"))
            while looks < 3:
                await asyncio.sleep(0.01)
            reserved = await client.reserve_load("t", "x")
            assert not again.done()
            may_seal.set()
            done = await again
        assert [each.segment for each in done.segments] == [each.segment for each in reserved]
        await check_all(client, "t")
        await local.broker.maintenance.round()
        record = await local.broker.catalogue.read("t")
        assert record is not None and record.state.removals == ()


async def test_other_rows_under_the_same_name_are_refused(broker: HttpBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncClient(broker.url) as client:
        await client.create_topic("t")
        answer = await broker.client.post("/v1/topics/t/loads", json={"segments": 1, "load": "x"})
        segment = answer.json()["segments"][0]["segment"]
        await broker.broker.store.create(keys.segment_file("t", segment, FileName(0)), b"other bytes")
        with pytest.raises(FileTaken, match="other bytes"):
            await client.load("t", TABLE, load="x", key="carrier", value="text")
        assert (await client.read_table("t")).num_rows == 0


async def test_more_or_fewer_rows_under_the_name_of_a_committed_load_are_refused(local: HttpBroker) -> None:
    async with AsyncClient(local.url) as client:
        await client.create_topic("t")
        done = await client.load("t", TABLE, load="x", key="carrier", value="text")
        with pytest.raises(FileTaken, match=f"committed with {ROWS:,} messages, and these are 5"):
            await client.load("t", TABLE.slice(0, 5), load="x", key="carrier", value="text")
        assert await client.load("t", TABLE, load="x", key="carrier", value="text") == done


async def test_an_overtaken_load_starts_again(local: HttpBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncClient(local.url) as client:
        await client.create_topic("t")
        await local.client.post("/v1/topics/t/loads", json={"segments": 1, "load": "slow"})
        await client.load("t", TABLE.slice(0, 10), load="quick", key="carrier", value="text")
        done = await client.load("t", TABLE.slice(10), load="slow", key="carrier", value="text")
        assert done.messages == ROWS - 10
        await check_all(client, "t")


async def test_rows_without_a_key_are_spread(local: HttpBroker) -> None:
    async with AsyncClient(local.url) as client:
        await client.create_topic("t", segments=4)
        done = await client.load("t", TABLE, value="text")
        assert all(ROWS // 5 < segment.end_offset < ROWS // 3 for segment in done.segments)
        assert sorted((await client.read_table("t"))["value"].to_pylist()) == sorted(
            text.encode() for text in TABLE["text"].to_pylist()
        )


async def test_keys_lie_in_the_segments_of_their_slots(local: HttpBroker) -> None:
    async with AsyncClient(local.url) as client:
        await client.create_topic("t", segments=4)
        done = await client.load("t", TABLE, key="carrier", value="text")
        ranges = {each.segment: each.range for each in done.segments}
        for row in (await client.read_table("t")).to_pylist():
            start, stop = ranges[row["segment"]]
            assert start <= slot_of(row["key"]) < stop


async def test_what_makes_no_sense_is_refused_before_anything_is_sent(local: HttpBroker, tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no Parquet")
    async with AsyncClient(local.url) as client:
        with pytest.raises(TopicNotFound):
            await client.load("none", TABLE)
        await client.create_topic("t", key_type="string", value_type="json")
        for source, more, reason in (
            (TABLE, {"load": "a/b"}, "load is"),
            (TABLE, {"load": 2025}, "load is '2025'"),
            (TABLE, {"key": "carier"}, "did you mean"),
            (tmp_path / "missing.parquet", {}, "there is no file"),
            (tmp_path / "text.parquet", {}, "not a readable Parquet file"),
            ([TABLE], {}, "a bulk load takes one table"),
            (5, {}, "is not a table"),
            (TABLE, {"key": "carrier", "value": "text"}, "not JSON"),
        ):
            with pytest.raises(InvalidArgument, match=reason):
                await client.load("t", source, **more)
        assert (await client.read_table("t")).num_rows == 0


async def test_a_refusal_reaches_the_caller(local: HttpBroker) -> None:
    async with AsyncClient(local.url) as client:
        await client.create_topic("t")
        answer = await local.client.post("/v1/topics/t/loads", json={"segments": 1, "load": "x"})
        segment = answer.json()["segments"][0]["segment"]
        await local.broker.store.create(keys.segment_file("t", segment, FileName(3)), b"stray")
        with pytest.raises(LoadRefused, match="not among the files"):
            await client.load("t", TABLE, load="x", key="carrier", value="text")
