"""Calls from one broker to another: parts of publishes for segments it owns, its newest messages, seals, hints.

They carry a secret derived from the cluster's record on the store: who can read that can do anything anyhow.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
import pyarrow as pa

from filer.errors import BraidError, OutcomeUnknown, SegmentMoved, SequenceExpired
from filer.requests import Position
from leader.cut_points import SlotLoads
from leader.load_averages import KnownAverages
from mq.errors import (
    CopyGap,
    CopyRefused,
    Draining,
    FrontStoreFull,
    NoOtherBroker,
    PeerFailed,
    PeerSilent,
    PeerUnreachable,
)
from mq.load_report import (
    LoadReport,
    ShownLoad,
    pack_averages,
    pack_report,
    unpack_averages,
    unpack_shown,
    unpack_slots,
)
from mq.part_batch import Part, pack_parts

PREFIX = "/internal/v1"
SECRET_HEADER = "Braid-Cluster-Secret"
ARROW = "application/vnd.apache.arrow.stream"
SHORT_SECONDS = 5.0
# A put may be retried for long; whoever asked has given up by then.
APPEND_SECONDS = 120.0
# What a peer says of a part that it certainly has not stored; but for the last, where that is not known.
_ERRORS: Mapping[str, type[BraidError]] = {
    "segment-moved": SegmentMoved,
    "front-store-full": FrontStoreFull,
    "copy-refused": CopyRefused,
    "copy-gap": CopyGap,
    "sequence-expired": SequenceExpired,
    "no-other-broker": NoOtherBroker,
    "draining": Draining,
    "store-unavailable": OutcomeUnknown,
}


@dataclass(frozen=True, slots=True)
class PeerAnswer:
    """What came back: status, headers in lower case, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class PeerTransport(Protocol):
    """One HTTP request to another broker."""

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | memoryview, *, timeout_seconds: float
    ) -> PeerAnswer:
        """Raises `PeerUnreachable` where the request certainly did not arrive, `PeerSilent` where it may have."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


@dataclass(frozen=True, slots=True)
class TailPage:
    """Messages of a segment from an offset on, in the columns of `log_schema`, as its owner has them.

    `sealed`: there will be no more behind them.
    """

    table: pa.Table
    end: int
    sealed: bool


class Peers:
    """The other brokers of the cluster, by their URLs. `secret` is set once the cluster's record has been read."""

    def __init__(self, transport: PeerTransport) -> None:
        self._transport = transport
        self._secret = ""

    def open(self, cluster_secret: bytes) -> None:
        """Begin to be one of the cluster's brokers."""
        self._secret = hmac.new(cluster_secret, b"braidmq peers", hashlib.sha256).hexdigest()

    def knows(self, secret: str) -> bool:
        """Whether that is the secret of this cluster's brokers."""
        return bool(self._secret) and hmac.compare_digest(secret.encode(), self._secret.encode())

    async def close(self) -> None:
        """Let go of connections."""
        await self._transport.close()

    async def append(
        self, url: str, topic: str, segment: int, version: int, rows: pa.Table, parts: Sequence[Part]
    ) -> list[list[Position] | BraidError]:
        """Have the segment's owner store parts of requests: for each where it stands, or why it is not stored.

        `version` is that of the topic's record by which the rows were cut. Raises `PeerUnreachable`, `OutcomeUnknown`.
        """
        answer = await self._call(
            "POST",
            url,
            f"/topics/{topic}/segments/{segment}/append?version={version}",
            pack_parts(rows, parts),
            timeout_seconds=APPEND_SECONDS,
        )
        outcomes = [_outcome(entry) for entry in _document(answer)["outcomes"]]
        if len(outcomes) != len(parts):
            raise PeerSilent(f"a broker answered {len(outcomes)} parts of {len(parts)}")
        return outcomes

    async def seal(self, url: str | None, topic: str, segment: int, version: int, *, timeout_seconds: float) -> int:
        """Have the owner seal its segment: the end offset. Raises `SegmentMoved` where it cannot, and as `append`."""
        path = f"/topics/{topic}/segments/{segment}/seal?version={version}"
        answer = await self._call("POST", url, path, timeout_seconds=timeout_seconds)
        return int(_document(answer)["end_offset"])

    async def replicate(
        self,
        url: str | None,
        topic: str,
        segment: int,
        version: int,
        rows: pa.Table,
        parts: Sequence[Part],
        *,
        base: int,
        stored_end: int,
    ) -> int:
        """Have a follower hold what its owner accepted from offset `base` on; up to where it holds the segment then.

        Raises `CopyRefused`, `CopyGap`, `FrontStoreFull`, and as `append`.
        """
        path = f"/topics/{topic}/segments/{segment}/replicate?version={version}&base={base}&stored={stored_end}"
        answer = await self._call("POST", url, path, pack_parts(rows, parts), timeout_seconds=SHORT_SECONDS)
        return int(_document(answer)["held_end"])

    async def take_over(
        self, url: str | None, topic: str, segment: int, version: int, *, timeout_seconds: float
    ) -> int:
        """Have a follower refuse the owner, store what it holds and seal; the end offset. Raises as `append`."""
        path = f"/topics/{topic}/segments/{segment}/takeover?version={version}"
        return int(_document(await self._call("POST", url, path, timeout_seconds=timeout_seconds))["end_offset"])

    async def tail(
        self,
        url: str | None,
        topic: str,
        segment: int,
        offset: int,
        *,
        max_rows: int,
        max_bytes: int,
        wait_seconds: float,
    ) -> TailPage:
        """What the owner has of a segment from `offset` on; waits for a first message. Raises as `append`."""
        path = (
            f"/topics/{topic}/segments/{segment}/tail?offset={offset}&max_rows={max_rows}&max_bytes={max_bytes}"
            f"&wait={wait_seconds}"
        )
        answer = await self._call("GET", url, path, timeout_seconds=wait_seconds + SHORT_SECONDS)
        if answer.status != 200:
            raise SegmentMoved()
        with pa.ipc.open_stream(answer.body) as reader:
            table = reader.read_all()
        return TailPage(table, int(answer.headers["braid-end-offset"]), answer.headers["braid-sealed"] == "true")

    async def refresh(self, url: str, topic: str, version: int) -> None:
        """Tell a broker that the topic's record has changed. Raises as `append`."""
        await self._call("POST", url, f"/topics/{topic}/refresh?version={version}", timeout_seconds=SHORT_SECONDS)

    async def report_load(self, url: str | None, report: LoadReport) -> bool:
        """Tell the leader how busy our segments are; False where that broker does not lead. Raises as `append`."""
        answer = await self._call("POST", url, "/load", pack_report(report), timeout_seconds=SHORT_SECONDS)
        return bool(_document(answer)["taken"])

    async def slot_loads(self, url: str | None, topic: str, segment: int) -> SlotLoads | None:
        """The load per slot as a segment's owner has seen it; None where it cannot tell. Raises as `append`."""
        answer = await self._call(
            "GET", url, f"/topics/{topic}/segments/{segment}/slots", timeout_seconds=SHORT_SECONDS
        )
        if answer.status != 200:
            raise SegmentMoved()
        return unpack_slots(answer.body)

    async def averages(self, url: str | None, topic: str, segment: int, *, timeout_seconds: float) -> KnownAverages:
        """What an owner knows of its segment's load; raises as `append`."""
        path = f"/topics/{topic}/segments/{segment}/averages"
        answer = await self._call("GET", url, path, timeout_seconds=timeout_seconds)
        if answer.status != 200:
            raise PeerFailed(f"a broker answered {answer.status}")
        return unpack_averages(answer.body)

    async def give_averages(
        self, url: str | None, topic: str, segment: int, version: int, averages: KnownAverages
    ) -> None:
        """Let a segment's new owner go on with what the former one knows; raises as `append`."""
        path = f"/topics/{topic}/segments/{segment}/averages?version={version}"
        await self._call("POST", url, path, pack_averages(averages), timeout_seconds=SHORT_SECONDS)

    async def shown_loads(self, url: str | None, topic: str, *, timeout_seconds: float) -> dict[int, ShownLoad]:
        """What the leader has heard of a topic's open segments; raises as `append`."""
        answer = await self._call("GET", url, f"/topics/{topic}/loads", timeout_seconds=timeout_seconds)
        if answer.status != 200:
            raise PeerFailed(f"a broker answered {answer.status}")
        return unpack_shown(answer.body)

    async def drain(self, url: str) -> int:
        """Ask a broker to hand over its segments; how many it still holds. Raises `NoOtherBroker`, and as `append`."""
        answer = await self._call("POST", url, "/drain", timeout_seconds=SHORT_SECONDS)
        return int(_document(answer)["segments"])

    async def undrain(self, url: str) -> int:
        """Let a broker own segments again; how many it owns. Raises `Draining`, and as `append`."""
        answer = await self._call("DELETE", url, "/drain", timeout_seconds=SHORT_SECONDS)
        return int(_document(answer)["segments"])

    async def _call(
        self, method: str, url: str | None, path: str, body: bytes | memoryview = b"", *, timeout_seconds: float
    ) -> PeerAnswer:
        if url is None:
            raise PeerUnreachable("no address of that broker is known")
        headers = {SECRET_HEADER: self._secret, "Content-Type": ARROW}
        return await self._transport.send(
            method, url.rstrip("/") + PREFIX + path, headers, body, timeout_seconds=timeout_seconds
        )


def _document(answer: PeerAnswer) -> Any:
    """The JSON of a good answer; raises what a bad one says."""
    try:
        document = orjson.loads(answer.body)
    except orjson.JSONDecodeError as error:
        raise PeerSilent(f"a broker answered {answer.status} without JSON") from error
    if answer.status == 200:
        return document
    raise _error(str(document.get("type", "")).rpartition(":")[2], str(document.get("detail", "")), answer.status)


def _outcome(entry: Mapping[str, Any]) -> list[Position] | BraidError:
    if "positions" in entry:
        return [Position(*numbers) for numbers in entry["positions"]]
    return _error(str(entry["error"]), str(entry["detail"]), 503)


def _error(slug: str, detail: str, status: int) -> BraidError:
    kind = _ERRORS.get(slug)
    if kind is not None:
        return kind(detail)
    return PeerFailed(detail) if 400 <= status < 500 else PeerSilent(detail)
