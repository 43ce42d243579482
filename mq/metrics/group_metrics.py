"""The series of consumer groups, as their coordinator saw them last."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

MOST_GROUPS = 1_000
"""So many groups have series of their own."""


class GroupSample(NamedTuple):
    """What is reported for one group. None: not known now, or groups of that mode have no such value."""

    lag_messages: int | None = None
    lag_seconds: float | None = None
    delayed_messages: int | None = None
    in_flight_messages: int = 0
    open_dead_letters: int = 0
    dead_messages_total: int = 0
    expired_messages_total: int = 0
    skipped_messages_total: int = 0
    members: int = 0
    is_at_most: bool | None = None
    """Whether `lag_messages` counts others' messages too. None for groups that never do."""


_HELP = {
    "lag_messages": "Messages of the topic that the group is not done with, without those that are delayed.",
    "lag_seconds": "For how long the oldest message that the group is not done with has been due.",
    "delayed_messages": "Messages that a queue group has not handed out, and that are not due yet.",
    "in_flight_messages": "Messages that were handed out by a queue group and whose leases run.",
    "open_dead_letters": "Dead letters of a queue group that were neither redriven nor discarded.",
    "dead_messages_total": "Messages that a queue group has given up.",
    "expired_messages_total": "Messages that had expired before a queue group handed them out.",
    "skipped_messages_total": "Messages that retention removed before the group got to them.",
    "members": "Members of a stream group.",
}


_AT_MOST = "braidmq_group_lag_is_at_most"
_AT_MOST_HELP = "Of a group on a member of a topic group: 1 while its lag counts other members' messages too."


class GroupMetrics:
    """The series of the groups that this broker coordinates. Belongs to the event loop's thread.

    A request for metrics wakes the measurement (`asked`), and is answered with the values measured before.
    """

    def __init__(self) -> None:
        self._samples: Mapping[tuple[str, str], GroupSample] = {}
        self.count = 0
        self.was_asked = False

    def show(self, samples: Mapping[tuple[str, str], GroupSample], count: int) -> None:
        """Report these values of groups, by topic and name, and how many there are in all."""
        self._samples, self.count = samples, count

    def pieces(self) -> Iterator[bytes]:
        """Yield Prometheus' text format, family by family."""
        self.was_asked = True
        yield (
            "# HELP braidmq_groups Consumer groups that this broker coordinates.\n"
            f"# TYPE braidmq_groups gauge\nbraidmq_groups {self.count}.0\n"
        ).encode()
        for field, about in _HELP.items():
            name, kind = f"braidmq_group_{field}", "counter" if field.endswith("_total") else "gauge"
            rows = (
                f'{name}{{group="{group}",topic="{topic}"}} {float(value)}\n'
                for (topic, group), sample in self._samples.items()
                if (value := getattr(sample, field)) is not None
            )
            yield f"# HELP {name} {about}\n# TYPE {name} {kind}\n{''.join(rows)}".encode()
        bounds = (
            f'{_AT_MOST}{{group="{group}",topic="{topic}"}} {float(sample.is_at_most)}\n'
            for (topic, group), sample in self._samples.items()
            if sample.is_at_most is not None
        )
        yield f"# HELP {_AT_MOST} {_AT_MOST_HELP}\n# TYPE {_AT_MOST} gauge\n{''.join(bounds)}".encode()
