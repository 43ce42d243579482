"""Which requests and answers count: the right ones, once, and none that anybody has changed."""

import asyncio
import hashlib
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from starlette.types import Message

from filer.clock import ManualClock
from mq.base.errors import Forbidden, Malformed
from mq.peer_keys.digests import APART_BYTES, CheckedBody, digest_of
from mq.peer_keys.incoming import WINDOW_SECONDS, Incoming, NotServed
from mq.peer_keys.kept_keys import KeptKeys
from mq.peer_keys.outgoing import Known, Outgoing, Unproven
from mq.peer_keys.peer_keys import PeerKeys, parse_peer_keys
from mq.peer_keys.signatures import (
    ADDRESS_HEADER,
    ANSWER_HEADER,
    BROKER_HEADER,
    FORMAT,
    MOST_CHARACTERS,
    REFUSAL_HEADER,
    Stamp,
)

METHOD, TARGET, URL = "POST", "/internal/v1/topics/t/segments/0/seal?version=1&wait=2.5", "http://b:8080"
BODY = b"body"
DIGEST = hashlib.sha256(BODY).hexdigest()


def keys(*ids: str) -> PeerKeys:
    """Keys of these ids; `old*` is one with the id `old` and another secret."""
    return parse_peer_keys("".join(f"{each.strip('*')} {each.encode().hex():0>64}\n" for each in ids).encode())


class Pair:
    """A broker that asks, and one that is asked, at the same time of day."""

    def __init__(self, asking: PeerKeys | None = None, asked: PeerKeys | None = None) -> None:
        self.clock = ManualClock()
        self.asking_keys, self.asked_keys = KeptKeys(asking or keys("k")), KeptKeys(asked or keys("k"))
        self.outgoing = Outgoing(self.asking_keys, self.clock, "a.1")
        self.restart("b.1")

    def restart(self, broker: str, *urls: str) -> None:
        """Have another process be asked."""
        self.incoming = Incoming(self.asked_keys, self.clock, broker)
        self.incoming.announced_at(*(urls or (URL,)))

    def introduce(self) -> None:
        """Have the asking broker learn who is asked."""
        stamp, headers = self.refuse()
        assert self.outgoing.check(URL, stamp, 403, headers, DIGEST) == "receiver"
        self.outgoing.learn(URL, headers)

    def refuse(self) -> tuple[Stamp, Mapping[str, str]]:
        """The stamp of a request for nobody by name, and the headers of the refusal."""
        stamp, header = self.outgoing.sign(METHOD, URL, TARGET, DIGEST)
        with pytest.raises(NotServed) as caught:
            self.incoming.admit(self.incoming.stamp(header, METHOD, TARGET))
        return stamp, self.incoming.answered(stamp, 403, {}, DIGEST, caught.value.why)

    def ask(self) -> Stamp:
        """Have a request be served."""
        stamp, header = self.outgoing.sign(METHOD, URL, TARGET, DIGEST)
        self.incoming.admit(self.incoming.stamp(header, METHOD, TARGET))
        return stamp


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.introduce()
    return made


def test_a_request_is_served_and_its_answer_counts(pair: Pair) -> None:
    stamp = pair.ask()
    headers = pair.incoming.answered(stamp, 200, {"content-type": "application/json"}, DIGEST)
    assert pair.outgoing.check(URL, stamp, 200, headers, DIGEST) is None


CHANGES: Mapping[str, Callable[[Stamp, str], tuple[str, str, str]]] = {
    "method": lambda stamp, signature: ("GET", TARGET, _header(stamp, signature)),
    "path": lambda stamp, signature: (METHOD, TARGET.replace("/t/", "/u/"), _header(stamp, signature)),
    "query": lambda stamp, signature: (METHOD, TARGET.replace("version=1", "version=2"), _header(stamp, signature)),
    "key": lambda stamp, signature: (METHOD, TARGET, _header(replace(stamp, key_id="l"), signature)),
    "time": lambda stamp, signature: (METHOD, TARGET, _header(replace(stamp, time_us=stamp.time_us + 1), signature)),
    "life": lambda stamp, signature: (METHOD, TARGET, _header(replace(stamp, life="0" * 32), signature)),
    "number": lambda stamp, signature: (METHOD, TARGET, _header(replace(stamp, number=stamp.number + 1), signature)),
    "receiver": lambda stamp, signature: (METHOD, TARGET, _header(replace(stamp, receiver="b.2"), signature)),
    "sender": lambda stamp, signature: (METHOD, TARGET, _header(replace(stamp, sender="c.1"), signature)),
    "digest": lambda stamp, signature: (METHOD, TARGET, _header(replace(stamp, digest="0" * 64), signature)),
    "signature": lambda stamp, signature: (METHOD, TARGET, _header(stamp, "0" * 64)),
}


def _header(stamp: Stamp, signature: str) -> str:
    return " ".join((*stamp.words, signature))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_changed_in_a_request_is_refused(change: Callable[[Stamp, str], tuple[str, str, str]]) -> None:
    pair = Pair(keys("k", "l"), keys("k", "l"))
    pair.introduce()
    stamp, header = pair.outgoing.sign(METHOD, URL, TARGET, DIGEST)
    method, target, changed = change(stamp, header.rpartition(" ")[2])
    with pytest.raises(Forbidden, match="does not fit"):
        pair.incoming.stamp(changed, method, target)
    pair.incoming.admit(pair.incoming.stamp(header, METHOD, TARGET))


@pytest.mark.parametrize(
    "header",
    ["", FORMAT, "v2 k 1", "x" * (MOST_CHARACTERS + 1), f"{FORMAT} k 1 {'0' * 32}-0 - a {'0' * 64} {'0' * 63}", "\x00"],
)
def test_what_is_no_signature_is_refused(header: str, pair: Pair) -> None:
    with pytest.raises(Forbidden, match="the signature cannot be read"):
        pair.incoming.stamp(header, METHOD, TARGET)


@pytest.mark.parametrize(
    ("asking", "asked", "why"),
    [
        (keys("other"), keys("k"), "the key 'other' is not among the peer keys of this broker"),
        (keys("k*"), keys("k"), "the signature by the key 'k' does not fit: the key has another secret here"),
    ],
    ids=["unknown key", "another secret"],
)
def test_a_wrong_key_is_told_why(asking: PeerKeys, asked: PeerKeys, why: str) -> None:
    pair = Pair(asking, asked)
    _, header = pair.outgoing.sign(METHOD, URL, TARGET, DIGEST)
    with pytest.raises(Forbidden, match=why):
        pair.incoming.stamp(header, METHOD, TARGET)


def test_a_request_is_served_once(pair: Pair) -> None:
    _, header = pair.outgoing.sign(METHOD, URL, TARGET, DIGEST)
    pair.incoming.admit(pair.incoming.stamp(header, METHOD, TARGET))
    with pytest.raises(NotServed, match="was here before") as caught:
        pair.incoming.admit(pair.incoming.stamp(header, METHOD, TARGET))
    assert caught.value.why == "nonce"
    pair.ask()


def test_a_request_to_a_broker_that_was_there_before_is_refused_and_the_new_one_is_learned(pair: Pair) -> None:
    _, header = pair.outgoing.sign(METHOD, URL, TARGET, DIGEST)
    pair.restart("b.2")
    with pytest.raises(NotServed, match=r"is for broker 'b\.1', and this is b\.2"):
        pair.incoming.admit(pair.incoming.stamp(header, METHOD, TARGET))
    pair.introduce()
    pair.ask()


@pytest.mark.parametrize(
    ("seconds", "words"), [(-WINDOW_SECONDS - 1, "61.0 seconds behind"), (90.0, "90.0 seconds ahead")]
)
def test_a_time_that_is_far_off_is_refused_and_the_difference_is_learned(
    seconds: float, words: str, pair: Pair
) -> None:
    away = ManualClock(start_us=pair.clock.now_us() + int(seconds * 1e6))
    pair.outgoing = outgoing = Outgoing(pair.asking_keys, away, "c.1")
    outgoing._known[URL] = Known("b.1")
    stamp, header = outgoing.sign(METHOD, URL, TARGET, DIGEST)
    with pytest.raises(NotServed, match=rf"the clock of 'c\.1' is {words}") as caught:
        pair.incoming.admit(pair.incoming.stamp(header, METHOD, TARGET))
    headers = pair.incoming.answered(stamp, 403, {}, DIGEST, caught.value.why)
    assert outgoing.check(URL, stamp, 403, headers, DIGEST) == "time"
    outgoing.learn(URL, headers)
    pair.ask()


def answered(pair: Pair) -> tuple[Stamp, dict[str, str]]:
    stamp = pair.ask()
    headers = {"content-type": "a/b", "braid-sealed": "true", "x-request-id": "1"}
    return stamp, pair.incoming.answered(stamp, 200, headers, DIGEST)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"braid-sealed": "false"}, "does not fit"),
        ({"braid-end-offset": "7"}, "does not fit"),
        ({"content-type": "b/c"}, "does not fit"),
        ({BROKER_HEADER: "b.2"}, "does not fit"),
        ({ADDRESS_HEADER: f"{URL} http://x"}, "does not fit"),
        ({REFUSAL_HEADER: "nonce"}, "does not fit"),
        ({ANSWER_HEADER.lower(): ""}, "not signed"),
        ({ANSWER_HEADER.lower(): f"{FORMAT} k {'0' * 64}"}, "does not fit"),
        ({ANSWER_HEADER.lower(): f"{FORMAT} z {'0' * 64}"}, "by the key 'z', which is not among the peer keys here"),
    ],
)
def test_an_answer_that_was_changed_counts_for_nothing(change: Mapping[str, str], why: str, pair: Pair) -> None:
    stamp, headers = answered(pair)
    with pytest.raises(Unproven, match=why):
        pair.outgoing.check(URL, stamp, 200, {**headers, **change}, DIGEST)
    assert pair.outgoing.check(URL, stamp, 200, {**headers, "x-request-id": "2"}, DIGEST) is None


def test_an_answer_counts_for_its_own_request_status_and_body_only(pair: Pair) -> None:
    stamp, headers = answered(pair)
    for other, status, digest in ((pair.ask(), 200, DIGEST), (stamp, 404, DIGEST), (stamp, 200, "0" * 64)):
        with pytest.raises(Unproven, match="does not fit"):
            pair.outgoing.check(URL, other, status, headers, digest)


def test_who_leads_requests_to_another_broker_teaches_nothing(pair: Pair) -> None:
    pair.restart("c.1", "http://c:8080")
    stamp, headers = pair.refuse()
    with pytest.raises(Unproven, match=r"it is of 'c\.1', which is announced at another address"):
        pair.outgoing.check(URL, stamp, 403, headers, DIGEST)


def test_keys_rotate_step_by_step_without_a_refusal() -> None:
    """At each step each broker has this or the last file, and asks the other."""
    files = [keys("old"), keys("old", "new"), keys("new", "old"), keys("new")]
    for before, after in itertools.pairwise(files):
        for asking, asked in ((before, after), (after, before)):
            pair = Pair(asking, asked)
            pair.introduce()
            stamp = pair.ask()
            assert pair.outgoing.check(URL, stamp, 200, pair.incoming.answered(stamp, 200, {}, DIGEST), DIGEST) is None


@pytest.mark.parametrize("size", [0, 1, APART_BYTES - 1, APART_BYTES, 3 * APART_BYTES])
async def test_a_body_that_was_changed_is_refused_at_its_end(size: int) -> None:
    body = bytes(size)
    digest = await digest_of(memoryview(body))
    assert digest == hashlib.sha256(body).hexdigest()
    for pieces, is_right in (([body], True), ([body[: size // 2], body[size // 2 :]], True), ([body, b"more"], False)):
        messages: list[Message] = [
            {"type": "http.request", "body": piece, "more_body": n + 1 < len(pieces)} for n, piece in enumerate(pieces)
        ]
        waiting: asyncio.Queue[Message] = asyncio.Queue()
        for message in [*messages, {"type": "http.disconnect"}]:
            waiting.put_nowait(message)
        checked = CheckedBody(waiting.get, digest)
        got = [await checked() for _ in messages[:-1]]
        if is_right:
            assert [*got, await checked()] == messages
            assert (await checked())["type"] == "http.disconnect"
        else:
            with pytest.raises(Malformed, match="not the one that was signed"):
                await checked()
