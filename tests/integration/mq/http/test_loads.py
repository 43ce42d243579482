"""Loads over HTTP, on a directory and on S3: nothing half visible, each message once, in each key's order."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import filer.topic.reservations
from filer import keys
from filer.bulk_load.load_check import MOST_FOOTER_BYTES
from filer.bulk_load.load_files import LoadFile
from filer.clock import SystemClock
from filer.errors import ObjectExists, OutcomeUnknown
from filer.format.segment_file import Footer, decode, encode
from filer.keys import FileName
from filer.segment.segment_log import SegmentRef, recover_index
from filer.stores.local.local_store import LocalStore
from filer.topic.reservations import LIFETIME_US
from filer.topic.topic_state import TopicState
from tests.support.broker.http_broker import HttpBroker, http_broker
from tests.support.broker.problems import check_problem
from tests.support.format_snippets import snippet
from tests.support.topic.broken_load_files import rewritten, with_column
from tests.support.topic.bulk_loads import (
    ReservedLoad,
    by_key,
    claims,
    commit,
    load_rows,
    numbered,
    put_files,
    read_all,
    reserve,
    upload_urls,
)

TOPIC = "/v1/topics/t"


@pytest.fixture
async def broker(broker_on_each_store: HttpBroker) -> HttpBroker:
    (await broker_on_each_store.client.put(TOPIC, json={"segments": 2})).raise_for_status()
    return broker_on_each_store


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[HttpBroker]:
    async with http_broker(LocalStore(tmp_path / "data", clock=SystemClock()), grace=1.0) as made:
        (await made.client.put(TOPIC, json={"segments": 2})).raise_for_status()
        yield made


async def publish(broker: HttpBroker, rows: pa.Table, query: str = "") -> Any:
    messages = [{"key": row["key"].decode(), "value": row["value"].decode()} for row in rows.to_pylist()]
    answer = await broker.client.post(f"{TOPIC}/messages{query}", json={"messages": messages})
    assert answer.status_code == 200, answer.text
    return answer.json()["positions"]


async def state_of(broker: HttpBroker) -> TopicState:
    record = await broker.broker.catalogue.read("t")
    assert record is not None
    return record.state


async def stands(broker: HttpBroker, load: ReservedLoad) -> Any:
    return (await broker.client.get(load.path)).raise_for_status().json()["state"]


async def check_refused(broker: HttpBroker, load: ReservedLoad, answer: httpx.Response, reason: str) -> None:
    """A clear error, and nothing has changed."""
    problem = check_problem(answer, 422, "load-refused")
    assert reason in problem["detail"], problem
    assert await stands(broker, load) == "reserved"
    state = await state_of(broker)
    assert state.transition is None and [s.id for s in state.segments] == [0, 1]


async def test_from_reservation_to_reader(broker: HttpBroker) -> None:
    await publish(broker, numbered(0, 50, by="before-"))
    load = await reserve(broker.client, "t", 3, "backfill")
    files = load.files(numbered(0, 3000), file_bytes=20_000)
    assert len(files) > 3
    assert {put.status_code for put in await put_files(broker.client, load, files)} <= {200, 201}
    await publish(broker, numbered(50, 60, by="before-"))
    assert len(await read_all(broker.client, "t")) == 60
    answer = await commit(broker.client, load, files)
    assert answer.status_code == 200, answer.text
    committed = answer.json()
    assert committed["load"] == "backfill" and committed["messages"] == 3000
    assert [each["range"] for each in committed["segments"]] == [s["range"] for s in load.answer["segments"]]
    assert sum(each["end_offset"] for each in committed["segments"]) == 3000
    assert committed["version"] == (await broker.client.get(TOPIC)).json()["version"]
    await publish(broker, numbered(0, 50, by="after-"))
    found = by_key(await read_all(broker.client, "t"))
    for key in range(10):
        assert found[f"key-{key}"] == [
            *(f"before-{n}" for n in range(key, 60, 10)),
            *(f"{n}" for n in range(key, 3000, 10)),
            *(f"after-{n}" for n in range(key, 50, 10)),
        ]
    assert (await commit(broker.client, load, files)).json() == committed
    assert (await commit(broker.client, load, [])).json() == committed
    assert (await broker.client.get(load.path)).json() == {**load.answer, **committed, "state": "committed"}


async def test_segments_in_order_are_each_keys_order(local: HttpBroker) -> None:
    """What a reader of bare files goes by, also where segments were split, rolled and opened since the reservation."""
    await publish(local, numbered(0, 20, by="1-"))
    load = await reserve(local.client, "t", 3)
    (await local.client.post(f"{TOPIC}/segments/0/split", json={"parts": 3})).raise_for_status()
    await publish(local, numbered(0, 20, by="2-"))
    files = load.files(numbered(0, 20, by="3-"))
    await put_files(local.client, load, files)
    assert (await commit(local.client, load, files)).status_code == 200
    await publish(local, numbered(0, 20, by="4-"))
    listed = (await local.client.get(f"{TOPIC}/files")).json()["files"]
    order: dict[bytes, list[bytes]] = {}
    store = local.broker.store
    for file in sorted(listed, key=lambda file: (file["segment"], file["base_offset"])):
        key = keys.segment_file("t", file["segment"], FileName(file["base_offset"]))
        table = decode((await store.get(key)).data)
        for name, value in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
            order.setdefault(name, []).append(value)
    assert sum(map(len, order.values())) == 80
    for number in range(10):
        assert order[b"key-%d" % number] == [b"%d-%d" % (n, m) for n in range(1, 5) for m in (number, number + 10)]


async def test_a_repeat_of_what_was_published_before_a_load_is_told_after_it(local: HttpBroker) -> None:
    rows = numbered(0, 40, by="published-")
    first = await publish(local, rows, "?producer=p&sequence=1")
    await load_rows(local.client, "t", numbered(0, 100), segments=3, load="one")
    assert await publish(local, rows, "?producer=p&sequence=1") == first
    await load_rows(local.client, "t", numbered(0, 100), segments=5, load="two")
    await load_rows(local.client, "t", numbered(0, 100), segments=1, load="three")
    assert await publish(local, rows, "?producer=p&sequence=1") == first
    assert len(await read_all(local.client, "t")) == 340


async def test_a_successor_at_another_broker_knows_what_was_published_before(tmp_path: Path) -> None:
    """The seals are all that its owner has to go by: it starts after the load."""
    rows = numbered(0, 40, by="published-")
    async with http_broker(LocalStore(tmp_path, clock=SystemClock())) as one:
        (await one.client.put(TOPIC, json={"segments": 3})).raise_for_status()
        first = await publish(one, rows, "?producer=p&sequence=1")
        await load_rows(one.client, "t", numbered(0, 100), segments=2)
    async with http_broker(LocalStore(tmp_path, clock=SystemClock())) as other:
        assert await publish(other, rows, "?producer=p&sequence=1") == first
        assert len(await read_all(other.client, "t")) == 140


async def test_the_same_id_is_the_same_reservation(local: HttpBroker) -> None:
    body = {"segments": 3, "load": "x"}
    first = await local.client.post(f"{TOPIC}/loads", json=body)
    again = await local.client.post(f"{TOPIC}/loads", json={**body, "segments": 5})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    assert (
        first.json()["segments"][0]["prefix"] == f"topics/t/segments/segment={first.json()['segments'][0]['segment']}/"
    )
    other = await local.client.post(f"{TOPIC}/loads", json={"segments": 1})
    assert other.status_code == 201 and len(other.json()["load"]) == 26
    assert other.json()["segments"][0]["segment"] > first.json()["segments"][-1]["segment"]


async def test_putting_again_what_is_there(broker: HttpBroker) -> None:
    load = await reserve(broker.client, "t")
    files = load.files(numbered(0, 100))
    await put_files(broker.client, load, files)
    again = [put.status_code for put in await put_files(broker.client, load, files)]
    local = not broker.broker.store.traits.presigns
    assert set(again) == ({201} if local else {412})
    others = load.files(numbered(0, 200))
    assert {put.status_code for put in await put_files(broker.client, load, others)} == {412}
    looked = await upload_urls(broker.client, load, files, look=True)
    for file, target in zip(files, looked, strict=True):
        found = await broker.broker.store.head(keys.segment_file("t", file.segment, FileName(file.base_offset)))
        assert target["there"] == {"size": file.data.size, "etag": found.etag}
    assert (await commit(broker.client, load, files)).status_code == 200


async def test_an_address_is_good_for_no_longer_than_files_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes by one of a load that is given up now is there before its files are deleted."""
    asked: list[int] = []

    async def presigning(*_: Any, expires_seconds: int, **settings: Any) -> None:
        asked.append(expires_seconds)

    async with http_broker(LocalStore(tmp_path, clock=SystemClock()), grace=77.0) as one:
        (await one.client.put(TOPIC)).raise_for_status()
        load = await reserve(one.client, "t", 1)
        monkeypatch.setattr(one.broker.store, "presign_create", presigning)
        await upload_urls(one.client, load, load.files(numbered(0, 10)))
    assert asked == [77]


async def test_two_loads_at_once_are_ordered_or_refused(broker: HttpBroker) -> None:
    loads = [await reserve(broker.client, "t", 2, name) for name in ("a", "b")]
    files = [load.files(numbered(0, 50, by=f"{load.answer['load']}-")) for load in loads]
    for load, each in zip(loads, files, strict=True):
        await put_files(broker.client, load, each)
    answers = await asyncio.gather(*(commit(broker.client, *pair) for pair in zip(loads, files, strict=True)))
    assert answers[1].status_code == 200, answers[1].text
    if answers[0].status_code != 200:
        check_problem(answers[0], 409, "load-overtaken")
        await load_rows(broker.client, "t", numbered(0, 50, by="a-"), load="a")
    found = by_key(await read_all(broker.client, "t"))
    for key in range(10):
        runs = [[f"{name}-{n}" for n in range(key, 50, 10)] for name in "ab"]
        assert found[f"key-{key}"] in ([*runs[0], *runs[1]], [*runs[1], *runs[0]])


async def test_an_overtaken_load_is_reserved_anew_under_its_name(local: HttpBroker) -> None:
    first, second = await reserve(local.client, "t", 2, "a"), await reserve(local.client, "t", 2, "b")
    await load_rows(local.client, "t", numbered(0, 10, by="b-"), load="b")
    files = first.files(numbered(0, 10, by="a-"))
    check_problem(await commit(local.client, first, files), 409, "load-overtaken")
    again = await reserve(local.client, "t", 2, "a")
    assert again.answer["segments"][0]["segment"] > second.answer["segments"][-1]["segment"]
    await load_rows(local.client, "t", numbered(0, 10, by="a-"), load="a")
    assert by_key(await read_all(local.client, "t"))["key-0"] == ["b-0", "a-0"]


async def test_a_topic_has_so_many_loads_that_wait(local: HttpBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for one that has been overtaken is told as well: its segments are no use to anybody."""
    monkeypatch.setattr(filer.topic.reservations, "MOST_RESERVED", 3)
    for name in ("load-0", "load-1", "load-2"):
        last = await reserve(local.client, "t", 1, name)
    problem = check_problem(await local.client.post(f"{TOPIC}/loads", json={"segments": 1}), 409, "too-many-loads")
    assert "(load-0, load-1, load-2)" in problem["detail"]
    assert (await commit(local.client, last, [])).status_code == 200
    await reserve(local.client, "t", 1, "one-more")
    again = await local.client.post(f"{TOPIC}/loads", json={"segments": 1, "load": "load-0"})
    check_problem(again, 409, "too-many-loads")


async def test_a_load_while_segments_split_and_publishers_go_on(local: HttpBroker) -> None:
    load = await reserve(local.client, "t", 4)
    files = load.files(numbered(0, 500, by="loaded-"))
    await put_files(local.client, load, files)

    async def publishing() -> None:
        for number in range(30):
            await publish(local, numbered(number * 10, number * 10 + 10, by="online-"))

    async def splitting() -> None:
        (await local.client.post(f"{TOPIC}/segments/1/split", json={"parts": 2})).raise_for_status()

    answer, _, _ = await asyncio.gather(commit(local.client, load, files), publishing(), splitting())
    assert answer.status_code == 200, answer.text
    found = by_key(await read_all(local.client, "t"))
    for key in range(10):
        values = found[f"key-{key}"]
        assert [v for v in values if v.startswith("online")] == [f"online-{n}" for n in range(key, 300, 10)]
        begin = values.index(f"loaded-{key}")
        assert values[begin : begin + 50] == [f"loaded-{n}" for n in range(key, 500, 10)]
        assert len(values) == 80


async def test_an_empty_load_is_a_load(local: HttpBroker) -> None:
    load = await reserve(local.client, "t", 2)
    answer = await commit(local.client, load, [])
    assert answer.json()["messages"] == 0
    await publish(local, numbered(0, 10))
    assert len(await read_all(local.client, "t")) == 10


async def test_history_and_files_tell_of_a_load(local: HttpBroker) -> None:
    done = await load_rows(local.client, "t", numbered(0, 100))
    ids = [each["segment"] for each in done["segments"]]
    lives = (await local.client.get(f"{TOPIC}/history")).json()["segments"]
    loaded = [life for life in lives if life["segment"] in ids]
    assert {(life["reason"], life["state"], life["load"]) for life in loaded} == {("load", "sealed", done["load"])}
    assert sum(life["messages"] for life in loaded) == 100
    listed = (await local.client.get(f"{TOPIC}/files")).json()["files"]
    assert {file["segment"] for file in listed} == set(ids)
    assert sum(file["count"] for file in listed) == 100


async def test_the_rule_for_what_is_adopted(local: HttpBroker, tmp_path: Path) -> None:
    """As docs/file-format.md has it, beside a bare glob, which sees files from when they are written."""
    topic = tmp_path / "data" / "topics" / "t"
    waiting = await reserve(local.client, "t", 2, "waiting")
    await put_files(local.client, waiting, waiting.files(numbered(0, 100)))
    await load_rows(local.client, "t", numbered(0, 100), load="done")
    found: dict[str, Any] = {}
    exec(snippet("python-adopted", topic), found)
    folders = {int(path.name.removeprefix("segment=")) for path in (topic / "segments").iterdir()}
    assert folders - found["adopted"] == {each.segment for each in waiting.segments}
    listed = (await local.client.get(f"{TOPIC}/files")).json()["files"]
    assert {file["segment"] for file in listed} < found["adopted"]


# -- given up ----------------------------------------------------------------------------------------------


async def test_an_abandoned_load_is_gone_and_its_files_go(local: HttpBroker) -> None:
    load = await reserve(local.client, "t", 2, "x")
    files = load.files(numbered(0, 100))
    await put_files(local.client, load, files)
    assert (await local.client.delete(load.path)).status_code == 204
    for answer in (await local.client.delete(load.path), await commit(local.client, load, files)):
        check_problem(answer, 404, "load-not-found")
    check_problem(await local.client.post(f"{load.path}/urls", json={"files": []}), 404, "load-not-found")
    async with asyncio.timeout(30):
        while (await state_of(local)).loads or await list_folder(local, load):
            await local.broker.maintenance.round()
            await asyncio.sleep(0.05)
    again = await reserve(local.client, "t", 2, "x")
    assert again.answer["segments"][0]["segment"] > load.answer["segments"][-1]["segment"]
    await load_rows(local.client, "t", numbered(0, 100), load="x")
    assert len(await read_all(local.client, "t")) == 100


async def list_folder(broker: HttpBroker, load: ReservedLoad) -> list[str]:
    prefixes = [each["prefix"] for each in load.answer["segments"]]
    return [info.key for prefix in prefixes async for info in broker.broker.store.list(prefix)]


async def test_a_committed_load_cannot_be_given_up(local: HttpBroker) -> None:
    done = await load_rows(local.client, "t", numbered(0, 10))
    path = f"{TOPIC}/loads/{done['load']}"
    check_problem(await local.client.delete(path), 409, "load-committed")
    check_problem(await local.client.post(f"{path}/urls", json={"files": []}), 409, "load-committed")
    assert len(await read_all(local.client, "t")) == 10


async def test_what_was_never_committed_is_swept_after_a_day(local: HttpBroker) -> None:
    load = await reserve(local.client, "t", 2, "x")
    await put_files(local.client, load, load.files(numbered(0, 100)))

    def aged(state: TopicState) -> TopicState:
        (old,) = state.loads
        return state.model_copy(
            update={"loads": (old.model_copy(update={"expires_us": old.expires_us - LIFETIME_US}),)}
        )

    await local.broker.catalogue.change("t", aged)
    await local.broker.topics.refresh("t")
    await local.broker.maintenance.round()
    check_problem(await local.client.get(load.path), 404, "load-not-found")
    async with asyncio.timeout(30):
        while await list_folder(local, load):
            await local.broker.maintenance.round()
            await asyncio.sleep(0.05)


# -- a topic.json that forgets a load ----------------------------------------------------------------------


async def test_an_older_record_makes_no_broker_sweep_what_was_committed(local: HttpBroker, tmp_path: Path) -> None:
    """Nothing was published since, so nothing but the mark lies beyond the older record."""
    record = tmp_path / "data" / keys.topic("t")
    load = await reserve(local.client, "t", 2, "x")
    files = load.files(numbered(0, 100))
    await put_files(local.client, load, files)
    older = record.read_bytes()
    (await commit(local.client, load, files)).raise_for_status()
    newest = record.read_bytes()
    listed = await list_folder(local, load)
    replace_file(record, older)
    async with http_broker(LocalStore(tmp_path / "data", clock=SystemClock()), grace=1.0) as again:
        problem = check_problem(await again.client.get(TOPIC), 503, "data-damaged")
        assert problem["key"] == keys.topic("t") and "/versions/" in problem["detail"]
        await again.broker.maintenance.round()
        assert await list_folder(again, load) == listed
        replace_file(record, newest)
        await again.broker.topics.refresh("t")
        assert len(await read_all(again.client, "t")) == 100


async def test_no_commit_is_answered_that_an_older_record_has_forgotten(
    local: HttpBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "data" / keys.topic("t")
    load = await reserve(local.client, "t", 2, "x")
    files = load.files(numbered(0, 100))
    await put_files(local.client, load, files)
    older, mark = record.read_bytes(), local.broker.catalogue.mark

    async def forgotten(topic: str, version: int) -> None:
        nonlocal newest
        newest = record.read_bytes()
        replace_file(record, older)
        await mark(topic, version)

    newest = b""
    monkeypatch.setattr(local.broker.catalogue, "mark", forgotten)
    check_problem(await commit(local.client, load, files), 503, "data-damaged")
    monkeypatch.undo()
    replace_file(record, newest)
    assert (await commit(local.client, load, files)).json()["messages"] == 100


def replace_file(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


# -- files that lie ----------------------------------------------------------------------------------------


async def test_claims_that_do_not_fit_together(local: HttpBroker) -> None:
    load = await reserve(local.client, "t", 1)
    files = load.files(numbered(0, 1000), file_bytes=10_000)
    await put_files(local.client, load, files)
    assert len(files) > 2
    body = claims(files)
    for change, reason in (
        (lambda listed: listed[:-2] + listed[-1:], "have no gaps"),
        (lambda listed: listed[:-1], "taken by another file"),
        (lambda listed: [*listed, {**listed[-1], "base_offset": 1000, "count": 5}], "there is no such file"),
        (lambda listed: [*listed, listed[-1]], "offsets begin at 0"),
        (lambda listed: [{**listed[0], "segment": 7}, *listed[1:]], "segment 7 is not one of load"),
        (lambda listed: [{**listed[0], "size": listed[0]["size"] + 1}, *listed[1:]], "bytes, and"),
        (lambda listed: [{**listed[0], "count": 1000}], "not among the files"),
        (lambda listed: [*listed[:-1], {**listed[-1], "count": listed[-1]["count"] + 1}], "count"),
    ):
        answer = await local.client.post(load.path, json={"files": change(body["files"])})
        problem = check_problem(answer, 422, "load-refused")
        assert reason in problem["detail"], problem
    assert (await commit(local.client, load, files)).status_code == 200


LIES: list[tuple[str, Callable[[LoadFile], bytes], str]] = [
    (
        "wrong slots",
        lambda f: rewritten(f, with_column("key", lambda t: [b"stray-%d" % n for n in range(100)])),
        "slot",
    ),
    ("truncated", lambda f: f.data.to_pybytes()[:-100], "PAR1"),
]


@pytest.mark.parametrize(("name", "make", "reason"), LIES, ids=[name for name, _, _ in LIES])
async def test_a_file_that_lies(local: HttpBroker, name: str, make: Callable[[LoadFile], bytes], reason: str) -> None:
    """More of them are in tests/unit/filer/bulk_load/test_load_check.py."""
    load = await reserve(local.client, "t", 2)
    rows = numbered(0, 1000, keys=1000)
    mine = decode(load.files(rows)[0].data.to_pybytes())["value"].to_pylist()[:100]
    (file,) = load.files(rows.filter(pa.array([value in set(mine) for value in rows["value"].to_pylist()])))
    assert file.count == 100
    data = make(file)
    await local.broker.store.create(keys.segment_file("t", file.segment, FileName(0)), data)
    body = {"files": [{"segment": file.segment, "base_offset": 0, "count": 100, "size": len(data)}]}
    await check_refused(local, load, await local.client.post(load.path, json=body), reason)


async def test_a_million_row_groups(local: HttpBroker) -> None:
    """As many as there can be in a footer that is just small enough to be looked at, and in one that is not."""
    load = await reserve(local.client, "t", 1)
    table = decode(load.files(numbered(0, 1))[0].data.to_pybytes())
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, table.schema, use_dictionary=False, store_schema=False) as writer:
        for _ in range(2000):
            writer.write_table(table)
    data = sink.getvalue()
    assert int.from_bytes(data[-8:-4], "little") < MOST_FOOTER_BYTES
    segment = load.segments[0].segment
    await local.broker.store.create(keys.segment_file("t", segment, FileName(0)), data)
    body = {"files": [{"segment": segment, "base_offset": 0, "count": 2000, "size": len(data)}]}
    await check_refused(local, load, await local.client.post(load.path, json=body), "row groups")


async def test_a_file_that_inflates(local: HttpBroker) -> None:
    """A row group of 90 MB that takes some kilobytes compressed, as an honest footer says."""
    load = await reserve(local.client, "t", 1)
    (file,) = load.files(pa.table({"value": [bytes(30 * 1024 * 1024)] * 3}), file_bytes=1 << 30)
    inflated = rewritten(file)
    assert len(inflated) < 1_000_000
    segment = load.segments[0].segment
    await local.broker.store.create(keys.segment_file("t", segment, FileName(0)), inflated)
    body = {"files": [{"segment": segment, "base_offset": 0, "count": 3, "size": len(inflated)}]}
    await check_refused(local, load, await local.client.post(load.path, json=body), "a row group claims")


async def test_a_file_beside_those_of_the_load(broker: HttpBroker) -> None:
    load = await reserve(broker.client, "t", 1)
    files = load.files(numbered(0, 100))
    await put_files(broker.client, load, files)
    await broker.broker.store.create(keys.segment_file("t", files[0].segment, FileName(7)), b"stray")
    await check_refused(broker, load, await commit(broker.client, load, files), "not among the files")


def seal_of(load: ReservedLoad, end: int) -> bytes:
    ref = SegmentRef("t", load.segments[0].segment)
    footer = Footer(ref.segment, end, 0, f"load:{load.answer['load']}", 0, 0, sealed=True)
    return bytes(encode(ref.schema.in_file(ref.schema.log.empty_table()), footer))


@pytest.mark.parametrize("is_longer", [False, True])
async def test_a_seals_name_that_is_taken(local: HttpBroker, *, is_longer: bool) -> None:
    load = await reserve(local.client, "t", 1)
    files = load.files(numbered(0, 100))
    await put_files(local.client, load, files)
    taken = seal_of(load, 100) + b"more" if is_longer else b"stray"
    await local.broker.store.create(keys.segment_file("t", files[0].segment, FileName(100)), taken)
    await check_refused(local, load, await commit(local.client, load, files), "seal is taken")


async def test_a_file_behind_the_seal_that_an_earlier_commit_put(local: HttpBroker) -> None:
    load = await reserve(local.client, "t", 1)
    files = load.files(numbered(0, 100))
    await put_files(local.client, load, files)
    store, segment = local.broker.store, files[0].segment
    await store.create(keys.segment_file("t", segment, FileName(100)), seal_of(load, 100))
    await store.create(keys.segment_file("t", segment, FileName(101)), b"stray")
    await check_refused(local, load, await commit(local.client, load, files), "not among the files")
    await store.delete([keys.segment_file("t", segment, FileName(101))])
    assert (await commit(local.client, load, files)).status_code == 200


async def test_a_file_that_changes_after_its_check(local: HttpBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    load = await reserve(local.client, "t", 1)
    files = load.files(numbered(0, 100))
    await put_files(local.client, load, files)
    store = local.broker.store
    key = keys.segment_file("t", files[0].segment, FileName(0))
    create = store.create

    async def changing(put: str, *arguments: Any, **settings: Any) -> None:
        await create(put, *arguments, **settings)
        if put.endswith(f"{100:020d}.parquet"):
            other = rewritten(files[0], with_column("value", lambda t: [b"%03d" % n for n in range(100)]))
            other = other if len(other) == files[0].data.size else files[0].data.to_pybytes()
            await store.delete([key])
            await create(key, other)

    monkeypatch.setattr(store, "create", changing)
    await check_refused(local, load, await commit(local.client, load, files), "changed since it was checked")


async def test_a_commit_whose_puts_are_not_answered(local: HttpBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them took effect, and its answer was lost."""
    load = await reserve(local.client, "t", 2)
    files = load.files(numbered(0, 100))
    await put_files(local.client, load, files)
    create, lost = local.broker.store.create, set[str]()

    async def losing(key: str, *arguments: Any, **settings: Any) -> None:
        await create(key, *arguments, **settings)
        if key not in lost:
            lost.add(key)
            raise OutcomeUnknown(f"no answer to the put of {key}")

    monkeypatch.setattr(local.broker.store, "create", losing)
    assert (await commit(local.client, load, files)).status_code == 200
    for segment in load.segments:
        assert keys.index_snapshot("t", segment.segment) in lost
        assert sum(f"segment={segment.segment}/" in key for key in lost) == 1
    assert len(await read_all(local.client, "t")) == 100


async def test_a_file_that_comes_after_the_commit(tmp_path: Path) -> None:
    """Signed addresses outlive the commit: whoever has one can fill a name that lies between those of the load."""
    async with http_broker(LocalStore(tmp_path, clock=SystemClock()), grace=1.0) as one:
        (await one.client.put(TOPIC)).raise_for_status()
        load = await reserve(one.client, "t", 1)
        files = load.files(numbered(0, 1000), file_bytes=10_000)
        await put_files(one.client, load, files)
        assert (await commit(one.client, load, files)).status_code == 200
        for offset in (7, 999, 1001):
            late = await one.client.put(f"{load.path}/files/{files[0].segment}/{offset}", content=b"late")
            check_problem(late, 409, "load-committed")
            await one.broker.store.create(keys.segment_file("t", files[0].segment, FileName(offset)), b"late")
        assert len(await read_all(one.client, "t")) == 1000
    async with http_broker(LocalStore(tmp_path, clock=SystemClock()), grace=1.0) as other:
        assert len(await read_all(other.client, "t")) == 1000
        listed = (await other.client.get(f"{TOPIC}/files")).json()["files"]
        assert [file["base_offset"] for file in listed] == [file.base_offset for file in files]
        async with asyncio.timeout(30):
            while len(await list_folder(other, load)) > len(files) + 2:
                await other.broker.maintenance.round()
                await asyncio.sleep(0.05)
        assert len(await read_all(other.client, "t")) == 1000


async def test_a_segment_is_known_by_its_snapshot_as_by_its_files(local: HttpBroker) -> None:
    load = await reserve(local.client, "t", 2)
    files = load.files(numbered(0, 1000), file_bytes=10_000)
    await put_files(local.client, load, files)
    assert (await commit(local.client, load, files)).status_code == 200
    for segment in (await state_of(local)).segments:
        if segment.load is not None:
            ref = SegmentRef("t", segment.id)
            by_snapshot = await recover_index(local.broker.store, ref)
            await local.broker.store.delete([keys.index_snapshot("t", segment.id)])
            by_files = await recover_index(local.broker.store, ref)
            assert by_snapshot.files == by_files.files
            assert by_snapshot.stored_bytes == by_files.stored_bytes == segment.stored_bytes


async def test_a_load_of_another_topic(local: HttpBroker) -> None:
    (await local.client.put("/v1/topics/other")).raise_for_status()
    load = await reserve(local.client, "other", 1, "x")
    files = load.files(numbered(0, 10))
    await put_files(local.client, load, files)
    astray = ReservedLoad("t", load.answer)
    check_problem(await commit(local.client, astray, files), 404, "load-not-found")
    here = await reserve(local.client, "t", 1, "x")
    check_problem(await commit(local.client, here, files), 422, "load-refused")


BAD_REQUESTS: list[tuple[str, Any, int, str]] = [
    ("loads", {}, 422, "segments"),
    ("loads", {"segments": 0}, 422, "segments"),
    ("loads", {"segments": 1025}, 422, "segments"),
    ("loads", {"segments": "2"}, 422, "segments"),
    ("loads", {"segment": 2}, 422, "did you mean 'segments'"),
    ("loads", [], 422, "object"),
    ("loads", {"segments": 1, "load": "a/b"}, 422, "cannot name a load"),
    ("loads", {"segments": 1, "load": "x" * 65}, 422, "cannot name a load"),
    ("loads", {"segments": 1, "load": ".."}, 422, "cannot name a load"),
    ("loads/none", {"files": []}, 404, "no load"),
    ("loads/x", {"files": [{"segment": 1}]}, 422, "files.0"),
    ("loads/x", {"files": {}}, 422, "files"),
    ("loads/x", {"files": [5]}, 422, 'files.0: an object is wanted, as in {"files": [{"segment"'),
    ("loads/x/urls", {"files": [{"segment": 1, "base_offset": 0, "size": 10}]}, 422, "not one of load"),
    ("loads/x/urls", {"files": [{"segment": 1, "base_offset": 0, "size": 0}]}, 422, "size"),
    ("loads/x/urls", {"files": [{"segment": 1, "base_offset": -1, "size": 1}]}, 422, "base_offset"),
    ("loads/x/urls", {"files": [{"segment": 1, "base_offset": 10**18, "size": 1}]}, 422, "base_offset"),
]


@pytest.mark.parametrize(("path", "body", "status", "reason"), BAD_REQUESTS)
async def test_requests_that_make_no_sense(local: HttpBroker, path: str, body: Any, status: int, reason: str) -> None:
    await reserve(local.client, "t", 1, "x")
    answer = await local.client.post(f"{TOPIC}/{path}", json=body)
    assert answer.status_code == status and reason in answer.json()["detail"], answer.text


async def test_puts_that_make_no_sense(local: HttpBroker) -> None:
    load = await reserve(local.client, "t", 1, "x")
    segment = load.segments[0].segment
    for path, status in ((f"{segment + 1}/0", 422), ("0/0", 422), (f"{segment}/x", 404)):
        answer = await local.client.put(f"{load.path}/files/{path}", content=b"data")
        assert answer.status_code == status, answer.text
    stored = [info.key async for info in local.broker.store.list(keys.segments_folder("t"))]
    assert stored == []
    with pytest.raises(ObjectExists):
        (await local.client.put(f"{load.path}/files/{segment}/0", content=b"data")).raise_for_status()
        await local.broker.store.create(keys.segment_file("t", segment, FileName(0)), b"")
