"""Sends requests to other brokers with a proof of the sender, and accepts only answers with such a proof."""

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from filer.event_log import EventLog
from mq.base.errors import PeerUnproven
from mq.peer_keys.digests import digest_of
from mq.peer_keys.outgoing import Outgoing, Unproven
from mq.peer_keys.signatures import ANSWER_HEADER, REQUEST_HEADER
from mq.peers.answer_forms import UNREADABLE
from mq.peers.transport import PeerAnswer, PeerTransport

_log = EventLog(__name__)


@dataclass(frozen=True, slots=True)
class PeerRequest:
    """A request to the broker at `url`: its method, its path with query, its headers and its body."""

    method: str
    url: str
    target: str
    headers: Mapping[str, str]
    body: bytes | memoryview = b""


class ProvenSender:
    """Signs by `outgoing`. While a cluster gets its keys (`is_optional`), brokers without keys may answer too."""

    def __init__(self, outgoing: Outgoing, *, is_optional: bool = False) -> None:
        self._outgoing, self.is_optional = outgoing, is_optional

    async def send(self, by: PeerTransport, request: PeerRequest, *, timeout_seconds: float) -> PeerAnswer:
        """As `PeerTransport.send`. Raises `PeerUnproven` for an answer that no broker of the cluster has signed.

        Such an answer proves nothing, whatever it says. The address may be that of a dead broker, where another program
        listens now. Or an attacker between us may have passed the request on, and kept the right broker's answer. So
        the outcome is unknown, and nothing is recorded.

        A broker that refuses a request as one for another receiver, or by its time or nonce, has done nothing, and has
        signed that. So it may be signed anew and sent again, which is done once: each process at an address has a name
        of its own, which its first refusal contains.
        """
        digest = await digest_of(request.body)
        answer, refusal = await self._send_once(by, request, digest, timeout_seconds)
        if refusal is None:
            return answer
        self._outgoing.learn(request.url, answer.headers)
        return (await self._send_once(by, request, digest, timeout_seconds))[0]

    async def _send_once(
        self, by: PeerTransport, request: PeerRequest, digest: str, timeout_seconds: float
    ) -> tuple[PeerAnswer, str | None]:
        """Send once; returns the answer, and the word by which the broker refused to serve the request."""
        method, url, target = request.method, request.url, request.target
        stamp, header = self._outgoing.sign(method, url, target, digest)
        headers = {**request.headers, REQUEST_HEADER: header}
        answer = await by.send(method, url + target, headers, request.body, timeout_seconds=timeout_seconds)
        if self.is_optional and ANSWER_HEADER.lower() not in answer.headers:
            return answer, None
        try:
            said = await digest_of(answer.body)
            return answer, self._outgoing.check(url, stamp, answer.status, answer.headers, said)
        except Unproven as error:
            _log.warning("broker_not_proven", url=url, error=error)
            raise PeerUnproven(f"{url}: an answer counts for nothing: {error} ({_said(answer)})") from error


def _said(answer: PeerAnswer) -> str:
    """Return what an answer says of itself, for people."""
    try:
        return f"{answer.status}: {str(orjson.loads(answer.body)['detail'])!r:.400}"
    except UNREADABLE:
        return str(answer.status)
