"""Answers of brokers to each other: their content, and how that is packed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

import orjson
import pyarrow as pa

from filer.errors import (
    BraidError,
    CorruptFile,
    DataMissing,
    InvalidInput,
    OutcomeUnknown,
    ProducerTaken,
    SegmentMoved,
    SequenceExpired,
    UnreadableObject,
)
from filer.format.requests import Position
from leader.membership.refusing_brokers import SIGHTS, Sight
from leader.transitions import SealedEnd
from mq.base.errors import (
    CopyGap,
    CopyRefused,
    Draining,
    FrontStoreFull,
    NoOtherBroker,
    PeerDenied,
    PeerFailed,
    PeerSilent,
    PeerTooOld,
)
from mq.peers.traffic_report import (
    ShownTraffic,
    pack_averages,
    pack_shown,
    pack_slots,
    unpack_averages,
    unpack_shown,
    unpack_slots,
)
from mq.peers.transport import PeerAnswer

A = TypeVar("A")

ARROW = "application/vnd.apache.arrow.stream"
JSON_HEADERS: Mapping[str, str] = {"content-type": "application/json"}
_ARROW_HEADERS: Mapping[str, str] = {"content-type": ARROW}
# The errors by which a peer says that it certainly did not do what was asked. The last one is different: with
# `store-unavailable` the outcome is not known.
_ERRORS: Mapping[str, type[BraidError]] = {
    "segment-moved": SegmentMoved,
    "front-store-full": FrontStoreFull,
    "copy-refused": CopyRefused,
    "copy-gap": CopyGap,
    "sequence-expired": SequenceExpired,
    "producer-taken": ProducerTaken,
    "no-other-broker": NoOtherBroker,
    "draining": Draining,
    "forbidden": PeerDenied,
    "path-not-found": PeerTooOld,
    "store-unavailable": OutcomeUnknown,
}
# An object that the peer cannot read. Its description of the object is passed on.
_UNREADABLE: Mapping[str, type[UnreadableObject]] = {"data-missing": DataMissing, "data-damaged": CorruptFile}
_PLACE: Mapping[str, type[str] | type[int]] = {"key": str, "segment": int, "offset": int, "next_offset": int}
Place = Mapping[str, Any]
"""The object that cannot be read, and the messages concerned: `key`, `segment`, `offset`, `next_offset`."""


def place_in(document: Mapping[str, Any]) -> Place:
    """Return the place that a problem names, as far as it names one."""
    return {name: kind(document[name]) for name, kind in _PLACE.items() if document.get(name) is not None}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a broker did not do one of several things: the problem's slug and detail, and the cause of a store's error.

    `place` is the problem's place of an object that cannot be read.
    """

    slug: str
    detail: str
    cause: str | None = None
    place: Place = field(default_factory=dict)

    def error(self, status: int = 503) -> BraidError:
        """Return the error to raise at the caller: `PeerSilent`, an unknown outcome, unless the slug says more."""
        if (unreadable := _UNREADABLE.get(self.slug)) is not None:
            return unreadable(self.detail, **self.place)
        kind = _ERRORS.get(self.slug)
        if kind is OutcomeUnknown:
            return OutcomeUnknown(self.detail, cause=self.cause)
        if kind is not None:
            return kind(self.detail)
        return PeerFailed(self.detail) if 400 <= status < 500 else PeerSilent(self.detail)


Outcomes = Sequence[list[Position] | Refusal]
"""For each part of a request its positions, or why it is not stored."""


@dataclass(frozen=True, slots=True)
class TailPage:
    """Messages of a segment from an offset on, in the columns of `MessageSchema.log`, as its owner has them.

    `end` is the offset after the last of them. `sealed`: no more messages follow. `stored_bytes` is the size of all
    files of the segment, as they were stored.
    """

    table: pa.Table
    end: int
    sealed: bool
    stored_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class StoreProof:
    """What the broker of that id found on its store under the given key; None if nothing is there."""

    broker: str
    content: str | None


@dataclass(frozen=True, slots=True)
class AnswerForm(Generic[A]):
    """How the answer of a call is packed. `unpack` raises one of `UNREADABLE` if it cannot be read."""

    pack: Callable[[A], PeerAnswer]
    unpack: Callable[[PeerAnswer], A]


# The errors of `unpack` for bytes that no broker would send.
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, InvalidInput, pa.ArrowException, OSError)


def _json_form(pack: Callable[[A], object], unpack: Callable[[Any], A]) -> AnswerForm[A]:
    return AnswerForm(
        lambda answer: PeerAnswer(200, JSON_HEADERS, orjson.dumps(pack(answer))),
        lambda answer: unpack(orjson.loads(answer.body)),
    )


def bytes_form(headers: Mapping[str, str], pack: Callable[[A], bytes], unpack: Callable[[bytes], A]) -> AnswerForm[A]:
    """Return the form of an answer that is bytes with these headers."""
    return AnswerForm(lambda answer: PeerAnswer(200, headers, pack(answer)), lambda answer: unpack(answer.body))


def _number_form(name: str) -> AnswerForm[int]:
    return _json_form(lambda number: {name: number}, lambda document: int(document[name]))


def _pack_outcomes(outcomes: Outcomes) -> object:
    return {"outcomes": [_pack_outcome(outcome) for outcome in outcomes]}


def _pack_outcome(outcome: list[Position] | Refusal) -> dict[str, object]:
    if isinstance(outcome, Refusal):
        told: dict[str, object] = {"error": outcome.slug, "detail": outcome.detail, **outcome.place}
        return told if outcome.cause is None else {**told, "cause": outcome.cause}
    return {"positions": [(p.segment, p.offset, p.count) for p in outcome]}


def _unpack_outcomes(document: Any) -> Outcomes:
    return [_unpack_outcome(entry) for entry in document["outcomes"]]


def _unpack_outcome(entry: Any) -> list[Position] | Refusal:
    if "positions" in entry:
        return [Position(*numbers) for numbers in entry["positions"]]
    # Older brokers name no cause, and no object.
    return Refusal(str(entry["error"]), str(entry["detail"]), entry.get("cause"), place_in(entry))


def _pack_sealed_end(end: SealedEnd | None) -> object:
    """Packs None (the owner is still sealing) as an end with null for all numbers."""
    return {"end_offset": None, "seal_offset": None, "stored_bytes": None} if end is None else asdict(end)


def _unpack_sealing(document: Any) -> SealedEnd | None:
    is_sealing = document["end_offset"] is None and document["stored_bytes"] is None
    return None if is_sealing else _unpack_sealed_end(document)


def _unpack_sealed_end(document: Any) -> SealedEnd:
    # Older brokers do not send all of it.
    known = (document.get(name) for name in ("seal_offset", "stored_bytes"))
    return SealedEnd(int(document["end_offset"]), *(None if number is None else int(number) for number in known))


def _pack_tail(page: TailPage) -> PeerAnswer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, page.table.schema) as writer:
        writer.write_table(page.table)
    headers = {
        "content-type": ARROW,
        "braid-end-offset": str(page.end),
        "braid-sealed": "true" if page.sealed else "false",
    }
    if page.stored_bytes is not None:
        headers["braid-stored-bytes"] = str(page.stored_bytes)
    return PeerAnswer(200, headers, bytes(sink.getvalue()))


def _unpack_tail(answer: PeerAnswer) -> TailPage:
    with pa.ipc.open_stream(answer.body) as reader:
        table = reader.read_all()
    stored = answer.headers.get("braid-stored-bytes")
    return TailPage(
        table,
        int(answer.headers["braid-end-offset"]),
        answer.headers["braid-sealed"] == "true",
        None if stored is None else int(stored),
    )


def _unpack_sight(document: Any) -> Sight:
    return SIGHTS[SIGHTS.index(document["sight"])]


def _unpack_store_proof(document: Any) -> StoreProof:
    content = document["content"]
    return StoreProof(str(document["broker"]), None if content is None else str(content))


OUTCOMES = _json_form(_pack_outcomes, _unpack_outcomes)
SEALING = _json_form(_pack_sealed_end, _unpack_sealing)
SEALED_END = _json_form(_pack_sealed_end, _unpack_sealed_end)
TAIL = AnswerForm(_pack_tail, _unpack_tail)
HELD_END = _number_form("held_end")
RECORD_VERSION = _number_form("version")
SEGMENT_COUNT = _number_form("segments")
BROKER_ID: AnswerForm[str] = _json_form(lambda broker: {"broker": broker}, lambda document: str(document["broker"]))
SIGHT: AnswerForm[Sight] = _json_form(lambda sight: {"sight": sight}, _unpack_sight)
STORE_PROOF: AnswerForm[StoreProof] = _json_form(asdict, _unpack_store_proof)
TAKEN: AnswerForm[bool] = _json_form(lambda taken: {"taken": taken}, lambda document: bool(document["taken"]))
VIEW: AnswerForm[dict[int, ShownTraffic]] = bytes_form(JSON_HEADERS, pack_shown, unpack_shown)
SLOTS = bytes_form(_ARROW_HEADERS, pack_slots, unpack_slots)
AVERAGES = bytes_form(JSON_HEADERS, pack_averages, unpack_averages)
