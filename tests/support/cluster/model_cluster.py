"""A small cluster in memory behind `httpx.MockTransport`: owners, forwarding, transitions and producer windows.

One topic, `t`. Its brokers are `http://b0`, `http://b1`, …: any takes any publish, cuts it by the route of the moment,
and stores each share with its owner, or not at all. What every client must keep to is asserted on the way: a sequence
stays with its bytes.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx

from filer.slots import equal_ranges, slot_of
from tests.support.broker.fake_broker import broken, problem, refused
from tests.support.broker.published_rows import published_rows

KeyRange = tuple[int, int]
Row = dict[str, Any]
Request = tuple[str, int]


class Window:
    """The last sequences of each producer in one range of slots."""

    def __init__(self, size: int, known: dict[str, list[int]] | None = None) -> None:
        self.size = size
        self._known = {name: list(each) for name, each in (known or {}).items()}

    def copy(self) -> "Window":
        return Window(self.size, self._known)

    def has_expired(self, request: Request) -> bool:
        known = self._known.get(request[0], [])
        return len(known) >= self.size and request[1] < known[0]

    def note(self, request: Request) -> None:
        known = self._known.setdefault(request[0], [])
        if request[1] not in known:
            known.append(request[1])
            known.sort()
            del known[: -self.size]


@dataclass
class ModelSegment:
    """One segment: its owner, what it holds, and the windows of its slot ranges."""

    id: int
    range: KeyRange
    owner: str
    windows: list[tuple[KeyRange, Window]]
    is_open: bool = True
    rows: list[Row] = field(default_factory=list)


class ModelCluster:
    """`log` is every message in the order of storing. `faults` strike publishes, one each:
    the request is lost, the answer is, or the request arrives once more later on.

    A broker whose `gates` event is clear holds publishes back before it looks at the route; `held` counts them.
    """

    def __init__(self, *, brokers: int, segments: int, window_size: int = 1000) -> None:
        self.alive = {f"b{n}" for n in range(brokers)}
        self.ids = {name: f"{name}@1" for name in self.alive}
        self.gates = {name: asyncio.Event() for name in self.alive}
        for gate in self.gates.values():
            gate.set()
        self.held = dict.fromkeys(self.alive, 0)
        self.version = 1
        self.segments: list[ModelSegment] = []
        self.log: list[Row] = []
        self.publishes: list[tuple[str, Request]] = []
        self.faults: list[str | None] = []
        self.chaos: random.Random | None = None
        self.reachable: set[str] | None = None
        self._window_size = window_size
        self._positions: dict[tuple[Request, int], tuple[int, int]] = {}
        self._bodies: dict[Request, bytes] = {}
        self._late: set[asyncio.Task[httpx.Response]] = set()
        for n, key_range in enumerate(equal_ranges(segments)):
            self._open(key_range, f"b{n % brokers}", [(key_range, Window(window_size))])

    # -- what tests see and do -------------------------------------------------------------------------------

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.handle)

    @property
    def open_segments(self) -> list[ModelSegment]:
        return sorted((each for each in self.segments if each.is_open), key=lambda each: each.range)

    def segment_of(self, key: bytes) -> ModelSegment:
        return self._at(slot_of(key))

    def values_by_key(self) -> dict[bytes | None, list[bytes]]:
        """The values of each key in the order in which they were stored."""
        stored: dict[bytes | None, list[bytes]] = defaultdict(list)
        for row in self.log:
            stored[row["key"]].append(row["value"])
        return stored

    def change(self, sealed: Iterable[ModelSegment], opened: Iterable[tuple[KeyRange, str]]) -> None:
        """Carry out a transition. Successors inherit the windows of their slots."""
        old = list(sealed)
        for segment in old:
            segment.is_open = False
        for key_range, owner in opened:
            windows = [
                ((max(start, key_range[0]), min(stop, key_range[1])), window.copy())
                for segment in old
                for (start, stop), window in segment.windows
                if start < key_range[1] and key_range[0] < stop
            ]
            self._open(key_range, owner, windows)
        self.version += 1

    def split(self, segment: ModelSegment, *owners: str) -> None:
        start, stop = segment.range
        middle = (start + stop) // 2
        self.change([segment], [((start, middle), owners[0]), ((middle, stop), owners[-1])])

    def merge(self, first: ModelSegment, second: ModelSegment, owner: str) -> None:
        self.change([first, second], [((first.range[0], second.range[1]), owner)])

    def move(self, segment: ModelSegment, owner: str) -> None:
        self.change([segment], [(segment.range, owner)])

    def kill(self, broker: str) -> None:
        self.alive.discard(broker)

    def start(self, broker: str) -> None:
        """Restart a broker with its old address and another id."""
        self.alive.add(broker)
        name, _, incarnation = self.ids[broker].partition("@")
        self.ids[broker] = f"{name}@{int(incarnation) + 1}"

    async def settle(self) -> None:
        """Deliver delayed requests."""
        await asyncio.gather(*self._late, return_exceptions=True)

    # -- as the brokers answer ------------------------------------------------------------------------------

    async def handle(self, request: httpx.Request) -> httpx.Response:
        broker = request.url.host
        await self._dawdle()
        if broker not in self.alive or (self.reachable is not None and broker not in self.reachable):
            raise refused(request)
        if request.url.path == "/v1/cluster":
            return self._cluster()
        if request.url.path == "/v1/topics/t/route":
            return self._route()
        if request.url.path == "/v1/topics/t":
            return self._topic()
        assert request.url.path == "/v1/topics/t/messages", request.url
        fault = self._fault()
        if fault == "request-lost":
            raise broken(request)
        answer = await self._publish(broker, request)
        if fault == "repeated-later":
            self._late.add(asyncio.ensure_future(self._publish_late(broker, request)))
        if fault == "answer-lost" or broker not in self.alive:
            raise broken(request)
        return answer

    def _fault(self) -> str | None:
        if self.faults:
            return self.faults.pop(0)
        if self.chaos is not None and self.chaos.random() < 0.2:
            return self.chaos.choice(["request-lost", "answer-lost", "repeated-later"])
        return None

    def _cluster(self) -> httpx.Response:
        brokers = [
            {"broker": self.ids[each], "url": f"http://{each}", "state": "running"} for each in sorted(self.alive)
        ]
        return httpx.Response(200, json={"cluster": "c", "version": "1", "leader": None, "brokers": brokers})

    def _route(self) -> httpx.Response:
        entries = [
            {
                "segment": each.id,
                "range": list(each.range),
                "owner": {"broker": self.ids[each.owner], "url": f"http://{each.owner}"},
            }
            for each in self.open_segments
        ]
        return httpx.Response(200, json={"topic": "t", "version": self.version, "segments": entries})

    def _topic(self) -> httpx.Response:
        segments = [
            {"segment": each.id, "range": list(each.range), "state": "open" if each.is_open else "sealed"}
            for each in self.segments
        ]
        return httpx.Response(200, json={"topic": "t", "config": {}, "version": self.version, "segments": segments})

    async def _publish_late(self, broker: str, request: httpx.Request) -> httpx.Response:
        for _ in range(self.chaos.randrange(200) if self.chaos is not None else 20):
            await asyncio.sleep(0)
        return await self._publish(broker, request)

    async def _publish(self, broker: str, request: httpx.Request) -> httpx.Response:
        self.held[broker] += not self.gates[broker].is_set()
        await self.gates[broker].wait()
        identity = (request.url.params["producer"], int(request.url.params["sequence"]))
        self.publishes.append((broker, identity))
        assert self._bodies.setdefault(identity, request.content) == request.content, "a sequence has other bytes"
        rows = [_in_bytes(row) for row in published_rows(request)]
        shares: dict[int, list[int]] = defaultdict(list)
        for number, row in enumerate(rows):
            shares[self._at(_slot(row, identity)).id].append(number)
        refusals = []
        for segment_id, numbers in shares.items():
            await self._dawdle()
            refusal = self._store(self.segments[segment_id], identity, rows, numbers)
            refusals += [] if refusal is None else [refusal]
        if refusals and len(refusals) < len(shares):
            return problem(503, "publish-incomplete", retryable=True, retry_after=1, positions=[])
        return refusals[0] if refusals else self._answer(identity, len(rows))

    def _store(
        self, segment: ModelSegment, identity: Request, rows: list[Row], numbers: list[int]
    ) -> httpx.Response | None:
        """Store the part of one segment, completely or not at all. Returns the refusal, if any."""
        if not segment.is_open or segment.owner not in self.alive:
            return problem(503, "segment-moved", retryable=True, retry_after=1)
        new = [n for n in numbers if (identity, n) not in self._positions]
        slots = [_slot(rows[n], identity) for n in new]
        for (start, stop), window in segment.windows:
            if any(start <= slot < stop for slot in slots) and window.has_expired(identity):
                return problem(409, "sequence-expired")
        for n in new:
            self._positions[identity, n] = (segment.id, len(segment.rows))
            segment.rows.append(rows[n])
            self.log.append(rows[n])
        for _, window in segment.windows:
            window.note(identity)
        return None

    def _answer(self, identity: Request, count: int) -> httpx.Response:
        ranges: dict[int, list[int]] = defaultdict(list)
        for n in range(count):
            segment, offset = self._positions[identity, n]
            ranges[segment].append(offset)
        listed = [{"segment": s, "offset": min(each), "count": len(each)} for s, each in sorted(ranges.items())]
        return httpx.Response(200, json={"positions": listed})

    def _open(self, key_range: KeyRange, owner: str, windows: list[tuple[KeyRange, Window]]) -> None:
        self.segments.append(ModelSegment(len(self.segments), key_range, owner, windows))

    def _at(self, slot: int) -> ModelSegment:
        return next(each for each in self.open_segments if each.range[0] <= slot < each.range[1])

    async def _dawdle(self) -> None:
        for _ in range(self.chaos.randrange(8) if self.chaos is not None else 0):
            await asyncio.sleep(0)


def _slot(row: Row, identity: Request) -> int:
    key = row["key"]
    return slot_of(f"{identity[0]} {identity[1]}".encode()) if key is None else slot_of(key)


def _in_bytes(row: Row) -> Row:
    return {name: each.encode() if isinstance(each, str) else each for name, each in row.items()}
