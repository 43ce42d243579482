"""The caller's side of the protocol between brokers.

With keys of brokers (`mq/peer_keys`), each request and each answer is signed. Without them, each request carries a
secret that is derived from the cluster's record on the store. It protects as much as that record does: a client that
can read the record can do everything anyway.
"""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

from filer import request_ids, tracing
from filer.errors import BraidError
from filer.format.requests import Position
from leader.membership.refusing_brokers import Sight
from leader.policy.cut_points import SlotTraffic
from leader.traffic.traffic_averages import KnownAverages
from leader.transitions import SealedEnd
from mq.base.errors import PeerRefused, PeerSilent, PeerUnreachable
from mq.peers.answer_forms import ARROW, Refusal, StoreProof, TailPage
from mq.peers.call_addresses import CallAddresses
from mq.peers.calls import (
    APPEND,
    ASK_GROUP,
    AVERAGES,
    BROKER_HEADER,
    DRAIN,
    GIVE_AVERAGES,
    PRESENCE,
    PROVE_STORE,
    READ_TAIL,
    REFRESH,
    REPLICATE,
    REPORT_TRAFFIC,
    SEAL,
    SECRET_HEADER,
    SIGHT,
    SLOT_TRAFFIC,
    TAKE_OVER,
    TELL_REFUSED,
    UNDRAIN,
    VIEW_TRAFFIC,
    Call,
    Parameters,
    ToBroker,
    ToGroups,
    ToReadTail,
    ToReplicate,
    ToSeal,
    ToSegment,
    ToSegmentAt,
    ToTopic,
    ToTopicAt,
    ToWitness,
)
from mq.peers.group_call import GroupReply, GroupRequest, pack_group_call
from mq.peers.older_brokers import OlderBrokers
from mq.peers.part_batch import Part, pack_parts
from mq.peers.proven_sender import PeerRequest, ProvenSender
from mq.peers.traffic_report import ShownTraffic, TrafficReport, pack_averages, pack_report
from mq.peers.transport import PeerAnswer, PeerTransport

P = TypeVar("P", bound=Parameters)
A = TypeVar("A")

SHORT_SECONDS = 5.0
# A look at a broker that takes longer shows nothing.
LOOK_SECONDS = 1.0
# A larger record, of some thousands of segments, is not sent: brokers read it from the store.
MOST_RECORD_BYTES = 1024 * 1024
# The share of the caller's timeout after which an owner answers that it is still sealing.
SEAL_WAIT_SHARE = 0.5
# A put may be retried for a long time. All waiting callers have given up by then.
APPEND_SECONDS = 120.0
# A coordinator answers once the store has taken its decisions, or says after `publish_timeout` that it has not.
GROUP_SECONDS = 60.0


class Peers:
    """The other brokers of the cluster, by their URLs. Call `open` once the cluster's record has been read.

    Reads that wait for messages use the transport `polls`, if it is given: there may be one for each segment, and they
    would take the connections of all other calls.

    All calls raise `PeerUnreachable` if the request certainly did not arrive, `OutcomeUnknown` if it may have taken
    effect, and `PeerFailed` if the broker refused it for a reason that has no error of its own here.

    `when_refused` registers a callback for the URL of a broker that refuses connections. `proven` signs requests and
    checks answers. `addresses` returns the URL of each broker.
    """

    def __init__(
        self,
        transport: PeerTransport,
        polls: PeerTransport | None = None,
        proven: ProvenSender | None = None,
        addresses: CallAddresses | None = None,
    ) -> None:
        self._transport, self._polls, self._proven = transport, polls or transport, proven
        self.url_of = (addresses or CallAddresses()).of
        self._older = OlderBrokers()
        self._secret = self._broker = ""
        self._on_refused: Callable[[str], None] = lambda url: None

    def when_refused(self, call: Callable[[str], None]) -> None:
        """Register `call` for a broker's URL that refuses connections, each time any call but a look meets one."""
        self._on_refused = call

    def open(self, cluster_secret: bytes, broker: str = "") -> None:
        """Begin to act as a broker of the cluster, the one with that id."""
        self._broker = broker
        self._secret = hmac.new(cluster_secret, b"braidmq peers", hashlib.sha256).hexdigest()

    def knows(self, secret: str) -> bool:
        """Whether that is the secret of this cluster's brokers."""
        return bool(self._secret) and hmac.compare_digest(secret.encode(), self._secret.encode())

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()
        if self._polls is not self._transport:
            await self._polls.close()

    async def append(
        self, url: str | None, topic: str, segment: int, version: int, rows: pa.Table, parts: Sequence[Part]
    ) -> list[list[Position] | BraidError]:
        """Make the segment's owner store parts of requests: returns for each its positions, or why it is not stored.

        `version` is the version of the topic's record by which the rows were cut.
        """
        body, asked = pack_parts(rows, parts), ToSegmentAt(topic, segment, version)
        outcomes = await self._call(APPEND, url, asked, body, timeout_seconds=APPEND_SECONDS)
        if len(outcomes) != len(parts):
            raise PeerSilent(f"a broker answered for {len(outcomes)} parts, not for {len(parts)}")
        return [each.error() if isinstance(each, Refusal) else each for each in outcomes]

    async def seal(
        self, url: str | None, topic: str, segment: int, version: int, *, timeout_seconds: float
    ) -> SealedEnd | None:
        """Make the owner seal its segment: returns its end, or None while it is still sealing: ask again.

        Raises `SegmentMoved` if that broker does not own the segment.
        """
        asked = ToSeal(topic, segment, version, timeout_seconds * SEAL_WAIT_SHARE)
        return await self._call(SEAL, url, asked, timeout_seconds=timeout_seconds)

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
        """Make a follower hold the messages that the owner accepted from offset `base` on.

        Returns the end of those it holds.

        Raises `CopyRefused`, `CopyGap` and `FrontStoreFull`.
        """
        asked = ToReplicate(topic, segment, version, base, stored_end)
        return await self._call(REPLICATE, url, asked, pack_parts(rows, parts), timeout_seconds=SHORT_SECONDS)

    async def take_over(
        self, url: str | None, topic: str, segment: int, version: int, *, timeout_seconds: float
    ) -> SealedEnd:
        """Make a follower refuse the owner, store what it holds, and seal the segment; returns the segment's end."""
        asked = ToSegmentAt(topic, segment, version)
        return await self._call(TAKE_OVER, url, asked, timeout_seconds=timeout_seconds)

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
        """Return the owner's messages of a segment from `offset` on; waits for a first message.

        Raises `SegmentMoved` if that broker does not own the segment.
        """
        asked = ToReadTail(topic, segment, offset, max_rows, max_bytes, wait_seconds)
        transport = self._polls if wait_seconds else self._transport
        timeout_seconds = wait_seconds + SHORT_SECONDS
        return await self._call(READ_TAIL, url, asked, timeout_seconds=timeout_seconds, transport=transport)

    async def ask_group(
        self, url: str | None, topic: str, segment: int, version: int, call: GroupRequest, *, wait_seconds: float
    ) -> GroupReply:
        """Make the owner of a segment of `__groups` serve a request about a group with its key there.

        Raises `SegmentMoved` if that broker does not own the segment.
        """
        asked, body = ToGroups(topic, segment, version, wait_seconds), pack_group_call(call)
        transport = self._polls if wait_seconds else self._transport
        timeout_seconds = wait_seconds + GROUP_SECONDS
        return await self._call(ASK_GROUP, url, asked, body, timeout_seconds=timeout_seconds, transport=transport)

    async def refresh(self, url: str | None, topic: str, version: int, record: bytes = b"") -> None:
        """Report to a broker that the topic's record has changed. With the `record`, the broker need not read it.

        Send only a record that is on the store, or was.
        """
        await self._call(REFRESH, url, ToTopicAt(topic, version), record, timeout_seconds=SHORT_SECONDS)

    async def report_traffic(self, url: str | None, report: TrafficReport) -> bool:
        """Report the traffic of our segments to the leader; False if that broker does not lead."""
        return await self._call(REPORT_TRAFFIC, url, ToBroker(), pack_report(report), timeout_seconds=SHORT_SECONDS)

    async def slot_traffic(self, url: str | None, topic: str, segment: int) -> SlotTraffic | None:
        """Return the traffic per slot as a segment's owner has counted it; None if it does not know."""
        return await self._call(SLOT_TRAFFIC, url, ToSegment(topic, segment), timeout_seconds=SHORT_SECONDS)

    async def averages(self, url: str | None, topic: str, segment: int, *, timeout_seconds: float) -> KnownAverages:
        """Return the averages that an owner knows of its segment's traffic."""
        return await self._call(AVERAGES, url, ToSegment(topic, segment), timeout_seconds=timeout_seconds)

    async def give_averages(
        self, url: str | None, topic: str, segment: int, version: int, averages: KnownAverages
    ) -> None:
        """Make a segment's new owner go on with the averages of the former one."""
        asked, body = ToSegmentAt(topic, segment, version), pack_averages(averages)
        await self._call(GIVE_AVERAGES, url, asked, body, timeout_seconds=SHORT_SECONDS)

    async def traffic_view(self, url: str | None, topic: str, *, timeout_seconds: float) -> dict[int, ShownTraffic]:
        """Return what the leader knows of the traffic of a topic's open segments, by segment."""
        return await self._call(VIEW_TRAFFIC, url, ToTopic(topic), timeout_seconds=timeout_seconds)

    async def drain(self, url: str | None) -> int:
        """Ask a broker to hand over its segments; returns how many it still has. Raises `NoOtherBroker`."""
        return await self._call(DRAIN, url, ToBroker(), timeout_seconds=SHORT_SECONDS)

    async def undrain(self, url: str | None) -> int:
        """Let a broker own segments again; returns how many it owns. Raises `Draining` while its process ends."""
        return await self._call(UNDRAIN, url, ToBroker(), timeout_seconds=SHORT_SECONDS)

    async def presence(self, url: str | None) -> str:
        """Return the id of the broker at that address. Raises `PeerRefused` if nothing listens there."""
        return await self._call(PRESENCE, url, ToBroker(), timeout_seconds=LOOK_SECONDS, is_look=True)

    async def sight(self, url: str | None, broker: str, *, heard_within_seconds: float) -> Sight:
        """Return what the broker at `url` sees of the one with that id."""
        asked, body = ToWitness(heard_within_seconds), broker.encode()
        # The witness takes a look of its own.
        return await self._call(SIGHT, url, asked, body, timeout_seconds=2 * LOOK_SECONDS, is_look=True)

    async def tell_refused(self, url: str | None, broker: str) -> bool:
        """Report to the leader that the address of a broker refuses connections; False if it ignores that."""
        return await self._call(TELL_REFUSED, url, ToBroker(), broker.encode(), timeout_seconds=SHORT_SECONDS)

    async def prove_store(self, url: str | None, ulid: str) -> StoreProof:
        """Return what the broker there finds on its store of what this one has written under that ULID."""
        return await self._call(
            PROVE_STORE, url, ToBroker(), ulid.encode(), timeout_seconds=SHORT_SECONDS, is_look=True
        )

    async def _call(
        self,
        call: Call[P, A],
        url: str | None,
        parameters: P,
        body: bytes | memoryview = b"",
        *,
        timeout_seconds: float,
        transport: PeerTransport | None = None,
        is_look: bool = False,
    ) -> A:
        if url is None:
            raise PeerUnreachable("the address of that broker is not known")
        headers = {BROKER_HEADER: self._broker, "Content-Type": ARROW}
        if self._proven is None or self._proven.is_optional:
            headers[SECRET_HEADER] = self._secret
        if (request_id := request_ids.current()) is not None:
            headers[request_ids.HEADER] = request_id
        for carrier in tracing.current().carriers()[:1]:
            headers.update(carrier)
        by, base_url = transport or self._transport, url.rstrip("/")

        async def send(form: Call[P, A]) -> PeerAnswer:
            target = form.target(parameters)
            try:
                if self._proven is None:
                    return await by.send(form.method, base_url + target, headers, body, timeout_seconds=timeout_seconds)
                request = PeerRequest(form.method, base_url, target, headers, body)
                return await self._proven.send(by, request, timeout_seconds=timeout_seconds)
            except PeerRefused:
                if not is_look:
                    self._on_refused(url)
                raise

        form = self._older.form_of(call, url)
        answer = await send(form)
        other = self._older.other_form(call, form, url, answer)
        return form.unpack(answer) if other is None else other.unpack(await send(other))
