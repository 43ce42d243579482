"""Which announced brokers refuse connections, and for how long: a pure decision (docs/design.md §8).

A refused connection shows that nothing listens at an address, as seen from there. It does not show that the process has
ended. A firewall may refuse in its name, a process may have closed its listener and still store, an address may have
moved. So nothing that must hold depends on this decision. A broker that is found gone is failed over before its session
ends: its segments get successors elsewhere. As for any other transition, the store and the followers that refuse an
owner decide which broker may seal them. If the broker lives, that has cost it its segments and no message.
"""

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from typing import Literal, get_args

from leader.membership.coordinator import BrokerInfo

Sight = Literal["refused", "answered", "unclear"]
"""What a broker saw at another broker's address.

`refused`: nothing listens there, or another broker does. `answered`: it answered, or called in the meantime. `unclear`:
anything else, such as a time-out or an unreachable network.
"""
SIGHTS: Sequence[Sight] = get_args(Sight)

ALONE_FACTOR = 2.0
"""A leader that can ask no other broker waits for so many times as long."""
MOST_DOUBLINGS = 10


def agreed(own: Sight, witnesses: Collection[Sight], *, alone: bool) -> Sight:
    """The common result of the leader and its witnesses.

    Two of them must be refused, and none may have an answer. `alone`: there is no other broker to ask.
    """
    if own == "answered" or "answered" in witnesses:
        return "answered"
    return "refused" if own == "refused" and (alone or "refused" in witnesses) else "unclear"


@dataclass(slots=True)
class _Case:
    """A broker that is looked at. Times are monotonic.

    `refused_since_seconds`: it has refused ever since; None: it does not. `gone`: it was failed over for that, and has
    not answered since. `unfit`: it was, and gets no segments yet. `answered_since_seconds`: it has answered ever since.
    """

    info: BrokerInfo
    last_refused_seconds: float
    refused_since_seconds: float | None = None
    gone: bool = False
    unfit: bool = False
    answered_since_seconds: float | None = None


class RefusingBrokers:
    """The brokers that are looked at, after a refused connection. All methods belong to the event loop's thread.

    A broker that refuses for `patience_seconds` is `gone`. Each time that happens to the same process, it gets twice as
    long the next time. So a listener that comes and goes does not make segments go back and forth.
    """

    def __init__(self, patience_seconds: float) -> None:
        self.patience_seconds = patience_seconds
        self._cases: dict[str, _Case] = {}
        self._times_gone: dict[str, int] = {}

    @property
    def watched(self) -> Sequence[BrokerInfo]:
        """The brokers to look at."""
        return [case.info for case in self._cases.values()]

    @property
    def gone(self) -> Set[str]:
        """The ids of brokers that are announced, and are to be failed over all the same."""
        return {broker for broker, case in self._cases.items() if case.gone}

    @property
    def doubtful(self) -> Set[str]:
        """The ids of brokers that are looked at and did not answer: do not count on them now."""
        return {broker for broker, case in self._cases.items() if case.answered_since_seconds is None}

    @property
    def unfit(self) -> Set[str]:
        """The ids of brokers that get no segments: those that are gone, and those that came back a moment ago."""
        return {broker for broker, case in self._cases.items() if case.unfit}

    def suspect(self, broker: BrokerInfo, *, now_seconds: float) -> None:
        """Look at that broker, after a refused connection."""
        self._cases.setdefault(broker.id, _Case(broker, now_seconds))

    def refused_seconds(self, broker: str, *, now_seconds: float) -> float:
        """For how long it has refused so far."""
        since_seconds = self._cases[broker].refused_since_seconds if broker in self._cases else None
        return 0.0 if since_seconds is None else now_seconds - since_seconds

    def keep_only(self, members: Sequence[BrokerInfo]) -> None:
        """Forget brokers that are not announced any more. A broker that has changed its announcement lives."""
        announced = {member.id: member for member in members}
        self._times_gone = {broker: times for broker, times in self._times_gone.items() if broker in announced}
        for broker, case in list(self._cases.items()):
            if broker not in announced or (case.info != announced[broker] and not case.unfit):
                del self._cases[broker]
            elif case.info != announced[broker]:
                self._cases[broker] = _Case(announced[broker], case.last_refused_seconds, unfit=True)

    def looked(self, broker: str, sight: Sight, *, alone: bool, now_seconds: float, session_seconds: float) -> None:
        """Apply the common result for a broker; does nothing if the broker is not looked at any more.

        A broker that is back gets segments again once it has answered for a session. A broker that was refused, and
        then gives no clear result for as long, is not looked at any more.
        """
        if (case := self._cases.get(broker)) is None:
            return
        match sight:
            case "refused":
                case.last_refused_seconds, case.answered_since_seconds = now_seconds, None
                if case.refused_since_seconds is None:
                    case.refused_since_seconds = now_seconds
                if not case.gone and now_seconds - case.refused_since_seconds >= self._patience_seconds(broker, alone):
                    case.gone = case.unfit = True
                    self._times_gone[broker] = self._times_gone.get(broker, 0) + 1
            case "answered":
                case.refused_since_seconds, case.gone = None, False
                if case.answered_since_seconds is None:
                    case.answered_since_seconds = now_seconds
                if not case.unfit or now_seconds - case.answered_since_seconds >= session_seconds:
                    del self._cases[broker]
            case "unclear":
                case.refused_since_seconds = case.answered_since_seconds = None
                if not case.unfit and now_seconds - case.last_refused_seconds >= session_seconds:
                    del self._cases[broker]

    def clear(self) -> None:
        """Forget everything: this broker does not lead."""
        self._cases.clear()
        self._times_gone.clear()

    def _patience_seconds(self, broker: str, alone: bool) -> float:
        doublings = min(self._times_gone.get(broker, 0), MOST_DOUBLINGS)
        return self.patience_seconds * 2.0**doublings * (ALONE_FACTOR if alone else 1.0)
