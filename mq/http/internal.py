"""What brokers ask of each other, under `/internal/v1`: only for those who know the cluster's secret."""

import asyncio
import logging
import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from urllib.parse import parse_qsl

import orjson
import pyarrow as pa

from filer.errors import CorruptFile, InvalidInput, SegmentMoved, SegmentSealed
from filer.next_file import Accepted
from filer.requests import Position
from filer.schema import rows_schema
from filer.segment_writer import SegmentWriter, WriterState
from filer.topic_state import TopicState
from leader.transitions import SealedEnd
from mq.bodies.intake import ClientGone, Intake, Receive
from mq.broker import Broker
from mq.errors import CopyRefused, Forbidden, NotFound, OutOfTouch
from mq.front_store import FrontStore
from mq.http.problems import problem_of
from mq.http.publish import Scope, Send
from mq.load_report import (
    MOST_REPORT_BYTES,
    pack_averages,
    pack_shown,
    pack_slots,
    unpack_averages,
    unpack_report,
)
from mq.part_batch import Part, unpack_parts
from mq.peers import ARROW, MOST_RECORD_BYTES, PREFIX, SECRET_HEADER
from mq.topic_runtime import TopicRuntime

_PLACE = re.compile(rf"{PREFIX}/topics/([^/]+)/(?:segments/([0-9]{{1,18}})/)?([a-z]+)\Z")
_SECRET = SECRET_HEADER.lower().encode()
_LONGEST_WAIT_SECONDS = 60.0
REPORTS_AT_ONCE = 4
RECORDS_AT_ONCE = 4
_JSON = b"application/json"
_log = logging.getLogger(__name__)
Headers = list[tuple[bytes, bytes]]
Answer = tuple[bytes, Headers]


class Numbers(dict[str, int | float]):
    """The parameters of a call, all of them numbers; to ask for one that is missing raises `InvalidInput`."""

    def __missing__(self, name: str) -> int | float:
        raise InvalidInput(f"the parameter {name} is missing")


class Internal:
    """Serves the other brokers of the cluster."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # Room of their own: a leader whose front store is full is to hear of the flood all the same.
        self._reports = FrontStore(REPORTS_AT_ONCE * MOST_REPORT_BYTES)
        self._records = FrontStore(RECORDS_AT_ONCE * MOST_RECORD_BYTES)
        self._calls: dict[tuple[str, str], Callable[[Receive, str, int, Numbers], Awaitable[Answer]]] = {
            ("POST", "append"): self._append,
            ("POST", "seal"): self._seal,
            ("POST", "replicate"): self._replicate,
            ("POST", "takeover"): self._take_over,
            ("GET", "tail"): self._tail,
            ("POST", "refresh"): self._refresh,
            ("GET", "slots"): self._slots,
            ("GET", "loads"): self._loads,
            ("GET", "averages"): self._averages,
            ("POST", "averages"): self._take_averages,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        try:
            body, headers = await self._serve(scope, receive)
            status = 200
        except ClientGone:
            return
        except Exception as error:
            problem = problem_of(error)
            if problem.status == 500:
                _log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            status, body, headers = problem.status, problem.body(), problem.headers()
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _serve(self, scope: Scope, receive: Receive) -> Answer:
        secret = next((value for name, value in scope["headers"] if name == _SECRET), b"")
        if not self._broker.peers.knows(secret.decode("latin-1")):
            raise Forbidden("this is for the brokers of the cluster only")
        method, path = scope["method"], scope["path"]
        if (method, path) == ("POST", f"{PREFIX}/drain"):
            return _json({"segments": await self._broker.hand_over_to_others()})
        if (method, path) == ("DELETE", f"{PREFIX}/drain"):
            return _json({"segments": await self._broker.take_part_again()})
        if (method, path) == ("POST", f"{PREFIX}/load"):
            return await self._load(receive)
        place = _PLACE.match(path)
        call = self._calls.get((method, place[3])) if place else None
        if place is None or call is None:
            raise NotFound("path", f"there is no {method} {path}")
        return await call(receive, place[1], int(place[2] or 0), _numbers(scope["query_string"]))

    async def _append(self, receive: Receive, topic: str, segment: int, query: Numbers) -> Answer:
        """Store parts of requests in a segment of ours; all of them are taken before anything is awaited."""
        broker = self._broker
        with Intake(broker.front_store, broker.front_store.limit_bytes, "", wait=False) as intake:
            body = await intake.read(receive, None)
            runtime, writer = await self._writer(topic, segment, int(query["version"]))
            config = runtime.state.config
            parts = list(unpack_parts(body, rows_schema(config.key_type, config.value_type)))
            if any(part.request is not None for part, _ in parts):
                await writer.inheritance.wait()
            stored = [_taken(writer, part, rows) for part, rows in parts]
            outcomes = await asyncio.gather(*stored, return_exceptions=True)
        return _json({"outcomes": [_outcome(outcome) for outcome in outcomes]})

    async def _writer(self, topic: str, segment: int, version: int) -> tuple[TopicRuntime, SegmentWriter]:
        """Our open writer of that segment; raises `SegmentMoved`."""
        runtime = await self._runtime(topic, version)
        writer = runtime.writers.get(segment)
        if writer is None or writer.state is not WriterState.OPEN:
            raise SegmentMoved(f"segment {segment} of topic {topic!r} is not open here")
        return runtime, writer

    async def _replicate(self, receive: Receive, topic: str, segment: int, query: Numbers) -> Answer:
        """Hold what an owner accepted, for as long as it is not stored; what is stored by now makes room for it.

        Not while we are out of touch: the others may seal without asking us. The owner acknowledges by the store then.
        """
        broker, stored_end, base = self._broker, int(query["stored"]), int(query["base"])
        runtime = await self._runtime(topic, int(query["version"]))
        _check_copied(runtime, segment, broker.id)
        broker.parts.copies.take(topic, segment, (), stored_end)
        with Intake(broker.front_store, broker.front_store.limit_bytes, "", wait=False) as intake:
            body = await intake.read(receive, None)
        _check_copied(runtime, segment, broker.id)
        self._check_in_touch()
        config = runtime.state.config
        entries: list[Accepted] = []
        for part, rows in unpack_parts(body, rows_schema(config.key_type, config.value_type)):
            entries.append(Accepted(rows, base, part.count, part.size_bytes, part.timestamp_us, part.request))
            base += part.count
        return _json({"held_end": broker.parts.copies.take(topic, segment, entries, stored_end)})

    def _check_in_touch(self) -> None:
        if not self._broker.coordinator.in_touch():
            raise OutOfTouch(f"{self._broker.id} has lost touch with the cluster, and holds no more copies")

    async def _take_over(self, receive: Receive, topic: str, segment: int, query: Numbers) -> Answer:
        """Seal a segment that we follow in its owner's stead, with all that we hold of it.

        Only a follower may: a broker that was started anew at a follower's address holds nothing of the segment, and
        its seal would cut off what the others hold.
        """
        runtime = await self._runtime(topic, int(query["version"]))
        found = runtime.state.segment(segment)
        if found is not None and found.state == "sealed" and found.end_offset is not None:
            return _json(asdict(SealedEnd(found.end_offset, found.seal_offset, found.stored_bytes)))
        _check_copied(runtime, segment, self._broker.id)
        return _json(asdict(await self._broker.arm.take_over(runtime, segment)))

    async def _runtime(self, topic: str, version: int) -> TopicRuntime:
        """The topic as of that version of its record or a later one: the asker may have heard of it before us."""
        runtime = await self._broker.topic(topic)
        if runtime.state.version < version:
            await runtime.refresh()
        return runtime

    async def _seal(self, receive: Receive, topic: str, segment: int, query: Numbers) -> Answer:
        """Seal a segment of ours, everything accepted before in it; repeated it gives the same answer.

        While the store takes longer than the asker would wait, it hears that we are at it: who says nothing may be
        paused, and others would have to decide against us. Its end is told only once the seal stands.
        """
        runtime = await self._runtime(topic, int(query["version"]))
        if (writer := runtime.writers.get(segment)) is None:
            raise SegmentMoved(f"segment {segment} of topic {topic!r} is not ours")
        sealing = asyncio.create_task(self._broker.arm.seal_ours(runtime, segment), name=f"seal {topic}/{segment}")
        try:
            await asyncio.wait([sealing], timeout=min(query.get("wait", math.inf), _LONGEST_WAIT_SECONDS))
            if not sealing.done() and writer.state is WriterState.SEALING:
                return _json({"end_offset": None, "seal_offset": None, "stored_bytes": None})
            return _json(asdict(await sealing))
        finally:
            sealing.cancel()

    async def _tail(self, receive: Receive, topic: str, segment: int, query: Numbers) -> Answer:
        """Messages of a segment of ours from an offset on, as soon as there are any."""
        broker = self._broker
        runtime = await broker.topic(topic)
        reader = await broker.reader(topic)
        deadline = broker.clock.monotonic_seconds() + min(float(query["wait"]), _LONGEST_WAIT_SECONDS)
        while True:
            writer = _our_writer(runtime, segment)
            news = runtime.news()
            offset = min(int(query["offset"]), await runtime.end_of(segment))
            async with broker.reads.cut_off():
                run = await reader.read_segment(
                    segment, offset, max_rows=int(query["max_rows"]), max_bytes=int(query["max_bytes"])
                )
            if not run.table.num_rows:
                # Where it was lost while we looked there may be more than we know of.
                writer = _our_writer(runtime, segment)
            sealed = writer.state is WriterState.SEALED and run.end == writer.index.end
            left = deadline - broker.clock.monotonic_seconds()
            if run.table.num_rows or sealed or left <= 0 or broker.draining.is_set():
                break
            await asyncio.wait([news], timeout=left)
        body = _arrow(run.table)
        if run.table.num_rows:
            # Readers are counted where they are served; to the segment this broker is one.
            runtime.loads.count_read(segment, run.table.num_rows, len(body))
        return body, [
            (b"content-type", ARROW.encode()),
            (b"braid-end-offset", b"%d" % run.end),
            (b"braid-sealed", b"true" if sealed else b"false"),
            (b"braid-stored-bytes", b"%d" % writer.index.stored_bytes),
        ]

    async def _load(self, receive: Receive) -> Answer:
        """A broker tells how busy its segments are."""
        with Intake(self._reports, MOST_REPORT_BYTES, "", wait=True) as intake:
            report = unpack_report(await intake.read(receive, None))
        return _json({"taken": self._broker.reshaping.hear(report.broker, report.pending_bytes, report.loads)})

    async def _slots(self, receive: Receive, topic: str, segment: int, query: Numbers) -> Answer:
        """How the load of a segment of ours lies over its slots."""
        loads = (await self._broker.topic(topic)).loads.slot_loads(segment)
        return pack_slots(loads), [(b"content-type", ARROW.encode())]

    async def _loads(self, receive: Receive, topic: str, segment: int, query: Numbers) -> Answer:
        """What we have heard, as the leader, of the topic's segments."""
        runtime = await self._broker.topic(topic)
        return pack_shown(self._broker.shown_loads.heard(runtime)), [(b"content-type", _JSON)]

    async def _averages(self, receive: Receive, topic: str, segment: int, query: Numbers) -> Answer:
        """What we know of the load of a segment of ours."""
        known = (await self._broker.topic(topic)).loads.averages(segment)
        if known is None:
            raise SegmentMoved(f"segment {segment} of topic {topic!r} is not ours")
        return pack_averages(known), [(b"content-type", _JSON)]

    async def _take_averages(self, receive: Receive, topic: str, segment: int, query: Numbers) -> Answer:
        """What the former owner knew of the load of a segment that is ours now."""
        with Intake(self._reports, MOST_REPORT_BYTES, "", wait=True) as intake:
            known = unpack_averages(await intake.read(receive, None))
        (await self._runtime(topic, int(query["version"]))).loads.take_over(segment, known)
        return _json({"taken": True})

    async def _refresh(self, receive: Receive, topic: str, segment: int, query: Numbers) -> Answer:
        """The topic's record has changed: it comes along, or is read.

        Safe however late it comes: it is a record that stood on the store, and one as old as what is known changes
        nothing. Whoever opens a segment by an old record finds at its first put that others have been there.
        """
        with Intake(self._records, MOST_RECORD_BYTES, "", wait=True) as intake:
            body = await intake.read(receive, None)
            if body and topic in self._broker.topics:
                self._broker.see(_record_of(topic, body))
        runtime = await self._runtime(topic, int(query["version"]))
        return _json({"version": runtime.state.version})


def _record_of(topic: str, body: bytes) -> TopicState:
    try:
        state = TopicState.from_json(body)
    except CorruptFile as error:
        raise InvalidInput(f"that is no topic's record: {error}") from error
    if state.topic != topic:
        raise InvalidInput(f"the record is that of topic {state.topic!r}, not of {topic!r}")
    return state


def _our_writer(runtime: TopicRuntime, segment: int) -> SegmentWriter:
    """The one that writes the segment or has sealed it; raises `SegmentMoved` where that was somebody else."""
    writer = runtime.writers.get(segment)
    if writer is None or writer.state is WriterState.STOPPED:
        raise SegmentMoved(f"segment {segment} of topic {runtime.topic!r} is not ours")
    return writer


def _check_copied(runtime: TopicRuntime, segment: int, broker: str) -> None:
    """Raises `CopyRefused` where all of the segment is stored, `SegmentMoved` where it has never had a copy here."""
    found = runtime.state.segment(segment)
    if found is None or found.state != "open":
        raise CopyRefused(f"segment {segment} of topic {runtime.topic!r} is not open any more")
    if broker not in found.brokers[1:]:
        # Another life of this broker may have followed it. Its owner goes on until the leader gives it other followers.
        raise SegmentMoved(f"segment {segment} of topic {runtime.topic!r} has no copy here")


def _numbers(query: bytes) -> Numbers:
    try:
        pairs = parse_qsl(query.decode("ascii"))
        return Numbers((name, float(value) if name == "wait" else int(value)) for name, value in pairs)
    except ValueError as error:
        raise InvalidInput(f"the query is not valid: {error}") from error


def _taken(writer: SegmentWriter, part: Part, rows: pa.RecordBatch) -> asyncio.Future[list[Position]]:
    """Where a part of a request stands, once it does, or what `append` and its answer raise."""
    try:
        return writer.append(rows, part.size_bytes, part.request, replicated=part.replicated)
    except Exception as error:
        refused: asyncio.Future[list[Position]] = asyncio.get_running_loop().create_future()
        refused.set_exception(SegmentMoved() if isinstance(error, SegmentSealed) else error)
        return refused


def _outcome(outcome: list[Position] | BaseException) -> dict[str, object]:
    if isinstance(outcome, list):
        return {"positions": [(p.segment, p.offset, p.count) for p in outcome]}
    if not isinstance(outcome, Exception):
        raise outcome
    problem = problem_of(outcome)
    if problem.status == 500:
        _log.error("a part of a request failed", exc_info=outcome)
    return {"error": problem.slug, "detail": problem.detail}


def _json(document: object) -> Answer:
    return orjson.dumps(document), [(b"content-type", _JSON)]


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
