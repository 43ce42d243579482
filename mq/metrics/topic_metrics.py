"""The series of topics: of some by name, of the others together."""

from collections.abc import Iterable, Iterator

from mq.metrics.topic_families import FAMILIES, GAUGES, SERIES, Family

OTHER = "(other)"
"""Stands for the topics without series of their own. No topic can have this name."""


class TopicSeries:
    """The counters and gauges of one topic; each keeps its place in `FAMILIES`.

    A topic has series of its own from `open`, or from the first count for it, until `close`. Counts after that go to
    `OTHER`, so that late news of a deleted topic does not bring it back.
    """

    __slots__ = ("_settled", "_topics", "closed", "gauges", "name", "values")

    def __init__(self, topics: "TopicMetrics", name: str) -> None:
        self._topics, self.name = topics, name
        self.values: list[int] = topics.other
        self.gauges = dict.fromkeys(GAUGES, 0)
        # Whether `values` is the place for this topic's counts from now on, without another look.
        self._settled = False
        self.closed = False

    def count(self, family: Family, number: int = 1, label: str = "") -> None:
        """Add to a counter."""
        if number and not self._settled:
            self._settled = self._topics.settle(self)
        self.values[family.columns[label]] += number

    def set(self, family: Family, value: int, label: str = "") -> None:
        """Set a gauge."""
        column = family.columns[label]
        if value != self.gauges[column] and not self.closed:
            self._topics.show(self)
            if family.keeps_place and not self._settled:
                self._settled = self._topics.settle(self)
            self._topics.totals[column] += value - self.gauges[column]
            self.gauges[column] = value

    def open(self) -> None:
        """Begin its series at 0: the topic exists, perhaps again."""
        if self.closed:
            self.closed = self._settled = False
        self._topics.show(self)

    def close(self) -> None:
        """Remove its series: the topic was deleted."""
        if not self.closed:
            for column, value in self.gauges.items():
                self._topics.totals[column] -= value
                self.gauges[column] = 0
            self._topics.remove(self)
            self.values, self.closed, self._settled = self._topics.other, True, True


class TopicMetrics:
    """The series of all topics of a broker. Belongs to the event loop's thread.

    At most `most` topics have series of their own: the first for which something is counted or lost, and, as long as
    there is room, any others. The rest counts for `OTHER`, so that sums over topics are right. A counter of `OTHER`
    never decreases: a topic that gets series later begins there at 0.
    """

    def __init__(self, most: int) -> None:
        self.other = [0] * SERIES
        self.totals = dict.fromkeys(GAUGES, 0)
        self._most = most
        self._known: dict[str, TopicSeries] = {}
        self._shown: dict[str, TopicSeries] = {}
        # The shown topics without a count yet: they make room.
        self._idle: dict[str, TopicSeries] = {}

    def of(self, name: str) -> TopicSeries:
        """Return the series of the topic of that name, which need not be shown."""
        series = self._known.get(name)
        if series is None:
            series = self._known[name] = TopicSeries(self, name)
        return series

    def show(self, series: TopicSeries) -> None:
        """Give a topic series of its own, if there is room."""
        if series.name not in self._shown and len(self._shown) < self._most:
            self._shown[series.name] = self._idle[series.name] = series
            series.values = [0] * SERIES

    def settle(self, series: TopicSeries) -> bool:
        """Settle whether the topic has series of its own from now on, at the first count for it."""
        if series.name not in self._shown and len(self._shown) >= self._most and self._idle:
            self.remove(next(iter(self._idle.values())))
        self.show(series)
        return self._idle.pop(series.name, None) is not None

    def remove(self, series: TopicSeries) -> None:
        """Remove a topic's series, if it has any."""
        if self._shown.pop(series.name, None) is not None:
            self._idle.pop(series.name, None)
            series.values = self.other

    def value(self, family: Family, topic: str, label: str = "") -> int:
        """Return the value shown for a topic, or for `OTHER`; 0 if there is no such series."""
        column = family.columns[label]
        if topic == OTHER:
            return self._of_others()[column]
        series = self._shown.get(topic)
        return 0 if series is None else _all_of(series)[column]

    def pieces(self) -> Iterator[bytes]:
        """Yield Prometheus' text format, family by family.

        The library's own way takes twenty times as long, which matters with many topics.
        """
        rows = [(name, _all_of(series)) for name, series in self._shown.items()]
        rows.append((OTHER, self._of_others()))
        for family in FAMILIES:
            yield "".join(_lines(family, rows)).encode()

    def _of_others(self) -> list[int]:
        values = self.other.copy()
        for column, total in self.totals.items():
            values[column] = total - sum(series.gauges[column] for series in self._shown.values())
        return values


def _all_of(series: TopicSeries) -> list[int]:
    values = series.values.copy()
    for column, value in series.gauges.items():
        values[column] = value
    return values


def _lines(family: Family, rows: Iterable[tuple[str, list[int]]]) -> Iterator[str]:
    yield f"# HELP {family.name} {family.documentation}\n# TYPE {family.name} {family.type}\n"
    for label, column in family.columns.items():
        first = f'{family.name}{{{family.label}="{label}",topic="' if family.label else f'{family.name}{{topic="'
        for name, values in rows:
            yield f'{first}{name}"}} {values[column]}.0\n'
