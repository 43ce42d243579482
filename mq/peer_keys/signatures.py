"""What brokers sign, and how (HMAC-SHA256): pure functions of the request and the answer.

A request's signature covers all that decides its effect: method, path with query, body, and the broker that is asked.
It also covers what makes it worthless to others: the time, and a nonce that is used once. An answer's signature covers
the nonce of its request: so it answers that request and no other one.
"""

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mq.peer_keys.peer_keys import PeerKey

REQUEST_HEADER = "Braid-Peer-Request"
ANSWER_HEADER = "Braid-Peer-Answer"
BROKER_HEADER = "braid-peer-broker"
"""In an answer: the id of the answering broker."""
ADDRESS_HEADER = "braid-peer-address"
"""In an answer: the addresses at which that broker is announced."""
REFUSAL_HEADER = "braid-peer-refusal"
"""In an answer to a request that was not done: the reason, as one word (`incoming.Refusal`)."""
TIME_HEADER = "braid-peer-time"
"""In an answer: the time there, in microseconds."""
UNKNOWN = "-"
"""The receiver of a request if its sender does not know yet which broker listens at the address."""
FORMAT = "v1"
MOST_CHARACTERS = 1000
_WORD = r"([!-~]{1,200})"
_REQUEST = re.compile(rf"{FORMAT} {_WORD} ([0-9]{{1,18}}) ([0-9a-f]{{32}})-([0-9]{{1,18}}) {_WORD} {_WORD} "
                      r"([0-9a-f]{64}) ([0-9a-f]{64})\Z")  # fmt: skip
_ANSWER = re.compile(rf"{FORMAT} {_WORD} ([0-9a-f]{{64}})\Z")


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a request carries beside its method, its path and its body. `digest` is that of the body.

    `life` is that of the sending process, and `number` the request's in it: together they are its nonce.
    """

    key_id: str
    time_us: int
    life: str
    number: int
    receiver: str
    sender: str
    digest: str

    @property
    def nonce(self) -> str:
        """The nonce, which no other request has."""
        return f"{self.life}-{self.number}"

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words of the header, without the signature."""
        return (FORMAT, self.key_id, str(self.time_us), self.nonce, self.receiver, self.sender, self.digest)


def request_header(key: PeerKey, stamp: Stamp, method: str, target: str) -> str:
    """Return the header of a request. `target` is its path below the broker's address, with the query."""
    return " ".join((*stamp.words, _of_request(key, stamp, method, target)))


def parse_request(header: str) -> tuple[Stamp, str] | None:
    """Return the stamp and the signature in a header; None if they cannot be read."""
    match = _REQUEST.match(header) if len(header) <= MOST_CHARACTERS else None
    if match is None:
        return None
    key_id, time_us, life, number, receiver, sender, digest, signature = match.groups()
    return Stamp(key_id, int(time_us), life, int(number), receiver, sender, digest), signature


def is_request_of(key: PeerKey, stamp: Stamp, signature: str, method: str, target: str) -> bool:
    """Whether the holder of that key has signed this request."""
    return hmac.compare_digest(_of_request(key, stamp, method, target), signature)


def answer_header(key: PeerKey, nonce: str, status: int, headers: Mapping[str, str], digest: str) -> str:
    """Return the header of an answer to the request with that nonce."""
    return f"{FORMAT} {key.id} {_of_answer(key, nonce, status, headers, digest)}"


def parse_answer(header: str) -> tuple[str, str] | None:
    """Return the key's id and the signature in a header; None if they cannot be read."""
    match = _ANSWER.match(header) if len(header) <= MOST_CHARACTERS else None
    return None if match is None else (match[1], match[2])


def is_answer_of(
    key: PeerKey, signature: str, nonce: str, status: int, headers: Mapping[str, str], digest: str
) -> bool:
    """Whether the holder of that key has given this answer to the request with that nonce."""
    return hmac.compare_digest(_of_answer(key, nonce, status, headers, digest), signature)


def _of_request(key: PeerKey, stamp: Stamp, method: str, target: str) -> str:
    return _signature(key, ("braidmq peer request", method, target, *stamp.words))


def _of_answer(key: PeerKey, nonce: str, status: int, headers: Mapping[str, str], digest: str) -> str:
    return _signature(key, ("braidmq peer answer", FORMAT, key.id, nonce, str(status), *_signed(headers), digest))


def _signed(headers: Mapping[str, str]) -> Iterable[str]:
    """Yield the headers that count: a proxy may change the others. Their number is signed too: no two read alike."""
    named = {name.lower(): value for name, value in headers.items()}
    said = sorted(
        f"{name}:{value}"
        for name, value in named.items()
        if name == "content-type" or (name.startswith("braid-") and name != ANSWER_HEADER.lower())
    )
    return (str(len(said)), *said)


def _signature(key: PeerKey, words: Iterable[str]) -> str:
    # No word has a line break: headers, methods and targets of HTTP cannot have one.
    return hmac.digest(key.secret, "\n".join(words).encode("utf-8", "surrogateescape"), "sha256").hex()
