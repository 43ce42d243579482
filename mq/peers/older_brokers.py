"""Lets brokers of this version and of the one before understand each other in a rolling upgrade.

Brokers up to commit 655fd72 (0.1.0, November 2026) call traffic "load" in two paths and in one JSON key. This version
answers their requests too. It sends its own form first, and theirs if a broker does not know the path.

This module, with its users, may go once no cluster is upgraded from such a broker any more: in the version after
the next.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from mq.peers.answer_forms import JSON_HEADERS, TAKEN, bytes_form
from mq.peers.calls import REPORT_TRAFFIC, VIEW_TRAFFIC, Call, Parameters, ToBroker, ToTopic, says_unknown_path
from mq.peers.traffic_report import pack_shown, unpack_shown
from mq.peers.transport import PeerAnswer

P = TypeVar("P", bound=Parameters)
A = TypeVar("A")

MOST_OLDER = 1000
OLDER_REPORT_TRAFFIC = Call("POST", "load", ToBroker, TAKEN)
OLDER_VIEW_TRAFFIC = Call(
    "GET",
    "loads",
    ToTopic,
    bytes_form(JSON_HEADERS, partial(pack_shown, field="load"), partial(unpack_shown, field="load")),
)
# Parameters and request bodies are the same in both forms.
_OLDER_FORMS: Mapping[Call[Any, Any], Call[Any, Any]] = {
    REPORT_TRAFFIC: OLDER_REPORT_TRAFFIC,
    VIEW_TRAFFIC: OLDER_VIEW_TRAFFIC,
}


class OlderBrokers:
    """The URLs of brokers that do not know today's form of a call; the least recently learned is forgotten first.

    A broker may be upgraded at the same URL, and a later version may no longer know the older form. So a broker that
    does not know the form that was sent is sent the other form, whichever comes first.
    """

    def __init__(self) -> None:
        self._urls: dict[str, None] = {}

    def form_of(self, call: Call[P, A], url: str) -> Call[P, A]:
        """Return the form of a call to send to that broker first."""
        return _OLDER_FORMS.get(call, call) if url in self._urls else call

    def other_form(self, call: Call[P, A], sent: Call[P, A], url: str, answer: PeerAnswer) -> Call[P, A] | None:
        """Return the form to send next; None unless the broker does not know the form `sent` and there is another.

        Safe to send: a broker that does not know the path has done nothing.
        """
        older = _OLDER_FORMS.get(call)
        if older is None or not says_unknown_path(answer):
            return None
        self._urls.pop(url, None)
        if sent is older:
            return call
        self._urls[url] = None
        while len(self._urls) > MOST_OLDER:
            del self._urls[next(iter(self._urls))]
        return older
