"""Calls from one broker to another: parts of publishes for segments it owns, its newest messages, seals, hints.

They carry a secret derived from the cluster's record on the store: who can read that can do anything anyhow.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import orjson
import pyarrow as pa

from filer.errors import BraidError, InvalidInput, OutcomeUnknown, SegmentMoved, SequenceExpired
from filer.requests import Position
from leader.cut_points import SlotLoads
from leader.load_averages import KnownAverages
from leader.transitions import SealedEnd
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

T = TypeVar("T")

PREFIX = "/internal/v1"
SECRET_HEADER = "Braid-Cluster-Secret"
ARROW = "application/vnd.apache.arrow.stream"
SHORT_SECONDS = 5.0
# A record of more than that, some thousands of segments, is read from the store by whoever hears of it.
MOST_RECORD_BYTES = 1024 * 1024
# How much of the time for which it is waited an owner may take to say that it is sealing yet.
SEAL_WAIT_SHARE = 0.5
# A put may be retried for long; whoever asked has given up by then.
APPEND_SECONDS = 120.0
_NO_BROKERS_ANSWER = "that is not how a broker answers"
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

    `sealed`: there will be no more behind them. `stored_bytes` are those of all its files, as they were stored.
    """

    table: pa.Table
    end: int
    sealed: bool
    stored_bytes: int | None = None


class Peers:
    """The other brokers of the cluster, by their URLs. `open` it once the cluster's record has been read.

    What waits at the owner for messages goes by `polls`, where that is given: there may be one for each segment, and
    they would keep everything else from its connections.
    """

    def __init__(self, transport: PeerTransport, polls: PeerTransport | None = None) -> None:
        self._transport, self._polls = transport, polls or transport
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
        if self._polls is not self._transport:
            await self._polls.close()

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
        outcomes = _read(_checked(answer), lambda document: [_outcome(entry) for entry in document["outcomes"]])
        if len(outcomes) != len(parts):
            raise PeerSilent(f"a broker answered {len(outcomes)} parts of {len(parts)}")
        return outcomes

    async def seal(
        self, url: str | None, topic: str, segment: int, version: int, *, timeout_seconds: float
    ) -> SealedEnd | None:
        """Have the owner seal its segment: its end; None where it is at it yet, and is to be asked again.

        Raises `SegmentMoved` where it cannot, and as `append`.
        """
        wait_seconds = timeout_seconds * SEAL_WAIT_SHARE
        path = f"/topics/{topic}/segments/{segment}/seal?version={version}&wait={wait_seconds}"
        answer = _checked(await self._call("POST", url, path, timeout_seconds=timeout_seconds))
        is_at_it = _read(answer, lambda document: document["end_offset"] is None and document["stored_bytes"] is None)
        return None if is_at_it else _sealed_end(answer)

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
        return _number(answer, "held_end")

    async def take_over(
        self, url: str | None, topic: str, segment: int, version: int, *, timeout_seconds: float
    ) -> SealedEnd:
        """Have a follower refuse the owner, store what it holds and seal. Raises as `append`."""
        path = f"/topics/{topic}/segments/{segment}/takeover?version={version}"
        return _sealed_end(await self._call("POST", url, path, timeout_seconds=timeout_seconds))

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
        """What the owner has of a segment from `offset` on; waits for a first message.

        Raises `SegmentMoved` where that broker does not own it, and as `append`.
        """
        path = (
            f"/topics/{topic}/segments/{segment}/tail?offset={offset}&max_rows={max_rows}&max_bytes={max_bytes}"
            f"&wait={wait_seconds}"
        )
        by = self._polls if wait_seconds else self._transport
        answer = _checked(await self._call("GET", url, path, timeout_seconds=wait_seconds + SHORT_SECONDS, by=by))
        try:
            with pa.ipc.open_stream(answer.body) as reader:
                table = reader.read_all()
            stored = answer.headers.get("braid-stored-bytes")
            return TailPage(
                table,
                int(answer.headers["braid-end-offset"]),
                answer.headers["braid-sealed"] == "true",
                None if stored is None else int(stored),
            )
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise PeerSilent(f"{_NO_BROKERS_ANSWER}: {type(error).__name__}: {error}") from error

    async def refresh(self, url: str, topic: str, version: int, record: bytes = b"") -> None:
        """Tell a broker that the topic's record has changed; with the `record` it need not read it. Raises as `append`.

        Only a record that stands on the store, or stood there, may be told.
        """
        path = f"/topics/{topic}/refresh?version={version}"
        _checked(await self._call("POST", url, path, record, timeout_seconds=SHORT_SECONDS))

    async def report_load(self, url: str | None, report: LoadReport) -> bool:
        """Tell the leader how busy our segments are; False where that broker does not lead. Raises as `append`."""
        answer = await self._call("POST", url, "/load", pack_report(report), timeout_seconds=SHORT_SECONDS)
        return bool(_number(answer, "taken"))

    async def slot_loads(self, url: str | None, topic: str, segment: int) -> SlotLoads | None:
        """The load per slot as a segment's owner has seen it; None where it cannot tell. Raises as `append`."""
        answer = await self._call(
            "GET", url, f"/topics/{topic}/segments/{segment}/slots", timeout_seconds=SHORT_SECONDS
        )
        try:
            return unpack_slots(_checked(answer).body)
        except InvalidInput as error:
            raise PeerSilent(f"{_NO_BROKERS_ANSWER}: {error}") from error

    async def averages(self, url: str | None, topic: str, segment: int, *, timeout_seconds: float) -> KnownAverages:
        """What an owner knows of its segment's load; raises as `append`."""
        path = f"/topics/{topic}/segments/{segment}/averages"
        answer = _checked(await self._call("GET", url, path, timeout_seconds=timeout_seconds))
        try:
            return unpack_averages(answer.body)
        except InvalidInput as error:
            raise PeerSilent(f"{_NO_BROKERS_ANSWER}: {error}") from error

    async def give_averages(
        self, url: str | None, topic: str, segment: int, version: int, averages: KnownAverages
    ) -> None:
        """Let a segment's new owner go on with what the former one knows; raises as `append`."""
        path = f"/topics/{topic}/segments/{segment}/averages?version={version}"
        _checked(await self._call("POST", url, path, pack_averages(averages), timeout_seconds=SHORT_SECONDS))

    async def shown_loads(self, url: str | None, topic: str, *, timeout_seconds: float) -> dict[int, ShownLoad]:
        """What the leader has heard of a topic's open segments; raises as `append`."""
        answer = await self._call("GET", url, f"/topics/{topic}/loads", timeout_seconds=timeout_seconds)
        if answer.status != 200:
            raise PeerFailed(f"a broker answered {answer.status}")
        return unpack_shown(answer.body)

    async def drain(self, url: str) -> int:
        """Ask a broker to hand over its segments; how many it still holds. Raises `NoOtherBroker`, and as `append`."""
        return _number(await self._call("POST", url, "/drain", timeout_seconds=SHORT_SECONDS), "segments")

    async def undrain(self, url: str) -> int:
        """Let a broker own segments again; how many it owns. Raises `Draining`, and as `append`."""
        return _number(await self._call("DELETE", url, "/drain", timeout_seconds=SHORT_SECONDS), "segments")

    async def _call(
        self,
        method: str,
        url: str | None,
        path: str,
        body: bytes | memoryview = b"",
        *,
        timeout_seconds: float,
        by: PeerTransport | None = None,
    ) -> PeerAnswer:
        if url is None:
            raise PeerUnreachable("no address of that broker is known")
        headers = {SECRET_HEADER: self._secret, "Content-Type": ARROW}
        return await (by or self._transport).send(
            method, url.rstrip("/") + PREFIX + path, headers, body, timeout_seconds=timeout_seconds
        )


def _checked(answer: PeerAnswer) -> PeerAnswer:
    """A good answer; raises what a bad one says."""
    if answer.status == 200:
        return answer
    slug, detail = _read(answer, lambda problem: (str(problem["type"]).rpartition(":")[2], str(problem["detail"])))
    raise _error(slug, detail, answer.status)


def _number(answer: PeerAnswer, name: str) -> int:
    return _read(_checked(answer), lambda document: int(document[name]))


def _read(answer: PeerAnswer, take: Callable[[Any], T]) -> T:
    """What is wanted of the answer's JSON; raises `PeerSilent` where there is no such thing.

    At the address of a broker that is gone something else may listen by now.
    """
    try:
        return take(orjson.loads(answer.body))
    except (LookupError, TypeError, ValueError) as error:
        raise PeerSilent(f"{_NO_BROKERS_ANSWER} ({answer.status}): {type(error).__name__}: {error}") from error


def _sealed_end(answer: PeerAnswer) -> SealedEnd:
    def take(document: Any) -> SealedEnd:
        # A broker of a version before does not tell all of it: a cluster is upgraded one after the other.
        told = (document.get(name) for name in ("seal_offset", "stored_bytes"))
        return SealedEnd(int(document["end_offset"]), *(None if number is None else int(number) for number in told))

    return _read(_checked(answer), take)


def _outcome(entry: Mapping[str, Any]) -> list[Position] | BraidError:
    if "positions" in entry:
        return [Position(*numbers) for numbers in entry["positions"]]
    return _error(str(entry["error"]), str(entry["detail"]), 503)


def _error(slug: str, detail: str, status: int) -> BraidError:
    kind = _ERRORS.get(slug)
    if kind is not None:
        return kind(detail)
    return PeerFailed(detail) if 400 <= status < 500 else PeerSilent(detail)
