"""Every call from one broker to another, described once. The caller packs by it; the server dispatches by it.

A call is an HTTP request below `PREFIX`. Its path names a topic, and a segment of it, if its parameters do; all other
parameters are numbers in the query. To add a call: add a dataclass for its parameters unless one here fits, a `Call`
in `CALLS`, a method in `Peers`, and a handler in `mq/http/internal`.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, ClassVar, Generic, Protocol, TypeVar
from urllib.parse import parse_qsl

import orjson

from filer.errors import InvalidInput
from mq.base.errors import PeerSilent
from mq.peers import answer_forms
from mq.peers.answer_forms import UNREADABLE, AnswerForm, Refusal, place_in
from mq.peers.group_call import GROUP_REPLY
from mq.peers.transport import PeerAnswer


class Parameters(Protocol):
    """A dataclass of the parameters of a call."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


P = TypeVar("P", bound=Parameters)
A = TypeVar("A")

PREFIX = "/internal/v1"
SECRET_HEADER = "Braid-Cluster-Secret"
BROKER_HEADER = "Braid-Broker"
"""Names the broker that calls. Older brokers send none."""
_PATH = re.compile(rf"{PREFIX}(?:/topics/([^/]+)(?:/segments/([0-9]{{1,18}}))?)?/([a-z]+)\Z")
# Parameters with a shorter name in the query than in the code.
_QUERY_NAMES = {"wait_seconds": "wait", "stored_end": "stored", "heard_within_seconds": "heard"}
# -- parameters ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToBroker:
    """A call to the broker as such."""


@dataclass(frozen=True, slots=True)
class ToTopic:
    """A call about a topic."""

    topic: str


@dataclass(frozen=True, slots=True)
class ToTopicAt:
    """A call about a topic as of a version of its record, or of a later one."""

    topic: str
    version: int


@dataclass(frozen=True, slots=True)
class ToSegment:
    """A call about a segment."""

    topic: str
    segment: int


@dataclass(frozen=True, slots=True)
class ToSegmentAt:
    """A call about a segment as of a version of the topic's record, or of a later one."""

    topic: str
    segment: int
    version: int


@dataclass(frozen=True, slots=True)
class ToSeal:
    """As `ToSegmentAt`. The owner answers after `wait_seconds` at the latest, even if it is still sealing."""

    topic: str
    segment: int
    version: int
    wait_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class ToReplicate:
    """As `ToSegmentAt`. The rows begin at offset `base`; all offsets below `stored_end` are on the store."""

    topic: str
    segment: int
    version: int
    base: int
    stored_end: int


@dataclass(frozen=True, slots=True)
class ToReadTail:
    """A read of a segment from an offset on. It waits up to `wait_seconds` for a first message."""

    topic: str
    segment: int
    offset: int
    max_rows: int
    max_bytes: int
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class ToGroups:
    """As `ToSegmentAt`, about a group with its key in that segment. It waits up to `wait_seconds` for messages."""

    topic: str
    segment: int
    version: int
    wait_seconds: float


@dataclass(frozen=True, slots=True)
class ToWitness:
    """Asks what a broker sees of another one, which has answered if it called within `heard_within_seconds`."""

    heard_within_seconds: float


# -- calls -----------------------------------------------------------------------------------------------------------


class Call(Generic[P, A]):
    """One kind of request: its method, the last word of its path, its parameters, and the form of its answer."""

    def __init__(self, method: str, name: str, parameters: type[P], form: AnswerForm[A]) -> None:
        self.method, self.name, self._parameters, self._form = method, name, parameters, form
        known = [field.name for field in fields(parameters)]
        self.path_names = tuple(each for each in known if each in ("topic", "segment"))
        in_query = [field for field in fields(parameters) if field.name not in self.path_names]
        self._query = [(field.name, _QUERY_NAMES.get(field.name, field.name), field) for field in in_query]

    def target(self, parameters: P) -> str:
        """Return path and query of a request."""
        folders = "".join(f"/{name}s/{getattr(parameters, name)}" for name in self.path_names)
        query = "&".join(f"{short}={getattr(parameters, name)}" for name, short, _ in self._query)
        return f"{PREFIX}{folders}/{self.name}{'?' if query else ''}{query}"

    def parameters(self, in_path: Mapping[str, str | int], query: bytes) -> P:
        """Return the parameters of a request; raises `InvalidInput` if the query lacks one or holds no numbers."""
        given = _parse(query)
        numbers: dict[str, int | float] = {}
        for name, short, field in self._query:
            if short in given:
                numbers[name] = _number(given[short], field.type)
            elif field.default is MISSING:
                raise InvalidInput(f"the parameter {short} is missing")
        return self._parameters(**in_path, **numbers)

    def pack(self, answer: A) -> PeerAnswer:
        """Return the response for an answer."""
        return self._form.pack(answer)

    def unpack(self, answer: PeerAnswer) -> A:
        """Return the answer in a response. Raises the error that it reports.

        Raises `PeerSilent` for a response that no broker would send: something else may listen by now at the address
        of a broker that is gone.
        """
        try:
            if answer.status == 200:
                return self._form.unpack(answer)
            problem = orjson.loads(answer.body)
            refusal = Refusal(_slug(problem), str(problem["detail"]), place=place_in(problem))
        except UNREADABLE as error:
            raise PeerSilent(
                f"that is not how a broker answers ({answer.status}): {type(error).__name__}: {error}"
            ) from error
        raise refusal.error(answer.status)


# To a segment's owner. The body of `APPEND` is that of `pack_parts`.
APPEND = Call("POST", "append", ToSegmentAt, answer_forms.OUTCOMES)
SEAL = Call("POST", "seal", ToSeal, answer_forms.SEALING)
READ_TAIL = Call("GET", "tail", ToReadTail, answer_forms.TAIL)
# To the owner of a segment of `__groups`, the coordinator. The body is that of `pack_group_call`.
ASK_GROUP = Call("POST", "group", ToGroups, GROUP_REPLY)
# To a segment's follower. The body of `REPLICATE` is that of `pack_parts`.
REPLICATE = Call("POST", "replicate", ToReplicate, answer_forms.HELD_END)
TAKE_OVER = Call("POST", "takeover", ToSegmentAt, answer_forms.SEALED_END)
# To the leader. The body of `REPORT_TRAFFIC` is that of `pack_report`.
REPORT_TRAFFIC = Call("POST", "traffic", ToBroker, answer_forms.TAKEN)
VIEW_TRAFFIC = Call("GET", "traffic", ToTopic, answer_forms.VIEW)
# To a segment's owner, about its traffic; the last one to its new owner, with the body of `pack_averages`.
SLOT_TRAFFIC = Call("GET", "slots", ToSegment, answer_forms.SLOTS)
AVERAGES = Call("GET", "averages", ToSegment, answer_forms.AVERAGES)
GIVE_AVERAGES = Call("POST", "averages", ToSegmentAt, answer_forms.TAKEN)
# To any broker. The body of `REFRESH` is the topic's record, or empty.
REFRESH = Call("POST", "refresh", ToTopicAt, answer_forms.RECORD_VERSION)
DRAIN = Call("POST", "drain", ToBroker, answer_forms.SEGMENT_COUNT)
UNDRAIN = Call("DELETE", "drain", ToBroker, answer_forms.SEGMENT_COUNT)
PRESENCE = Call("GET", "presence", ToBroker, answer_forms.BROKER_ID)
# To any broker, and to the leader, about a broker; the body is its id.
SIGHT = Call("POST", "sight", ToWitness, answer_forms.SIGHT)
TELL_REFUSED = Call("POST", "refused", ToBroker, answer_forms.TAKEN)
# To any broker, from one that starts. The body is the ULID of what that one has written to its store.
PROVE_STORE = Call("POST", "storeproof", ToBroker, answer_forms.STORE_PROOF)

CALLS: Sequence[Call[Any, Any]] = (
    APPEND, SEAL, READ_TAIL, ASK_GROUP, REPLICATE, TAKE_OVER, REPORT_TRAFFIC, VIEW_TRAFFIC, SLOT_TRAFFIC, AVERAGES,
    GIVE_AVERAGES, REFRESH, DRAIN, UNDRAIN, PRESENCE, SIGHT, TELL_REFUSED, PROVE_STORE,
)  # fmt: skip


class CallTable:
    """Finds the call of a request."""

    def __init__(self, calls: Sequence[Call[Any, Any]]) -> None:
        self._calls = {(call.method, call.path_names, call.name): call for call in calls}

    def find(self, method: str, path: str, query: bytes) -> tuple[Call[Any, Any], Any] | None:
        """Return the call and its parameters; None if no call has that path. Raises `InvalidInput` for a bad query."""
        match = _PATH.match(path)
        if match is None:
            return None
        in_path: dict[str, str | int] = {}
        if match[1] is not None:
            in_path["topic"] = match[1]
        if match[2] is not None:
            in_path["segment"] = int(match[2])
        call = self._calls.get((method, tuple(in_path), match[3]))
        return None if call is None else (call, call.parameters(in_path, query))


def says_unknown_path(answer: PeerAnswer) -> bool:
    """Whether a broker answered that it does not know the path. False for an answer that no broker would give."""
    if answer.status != 404:
        return False
    try:
        return _slug(orjson.loads(answer.body)) == "path-not-found"
    except UNREADABLE:
        return False


def _slug(problem: Any) -> str:
    return str(problem["type"]).rpartition(":")[2]


def _parse(query: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(query.decode("ascii")))
    except ValueError as error:
        raise InvalidInput(f"the query is not valid: {error}") from error


def _number(text: str, kind: Any) -> int | float:
    try:
        return int(text) if kind is int else float(text)
    except ValueError as error:
        raise InvalidInput(f"the query is not valid: {error}") from error
