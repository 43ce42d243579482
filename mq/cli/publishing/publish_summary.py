"""The result of `mq publish`: how many messages were stored, where, and how fast."""

from braidmq import PositionRange, Published
from filer.clock import Clock
from mq.cli.output import print_json, print_lines, print_table


class PublishSummary:
    """Adds up acknowledged publishes. Adjacent ranges of one segment become one range."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_seconds = clock.monotonic_seconds()
        self._ranges: dict[int, list[PositionRange]] = {}
        self.count = 0
        self._under_way = self._partly = 0

    def begin(self, count: int) -> None:
        """Count messages that are sent now. Nothing is known of them until `advance` or `add`."""
        self._under_way, self._partly = count, 0

    def advance(self, acknowledged: int, _: int) -> None:
        """Note how many of the messages under way are acknowledged: the first ones."""
        self._partly = acknowledged

    @property
    def stored(self) -> int:
        """How many messages are known to be stored: the first ones."""
        return self.count + self._partly

    @property
    def uncertain(self) -> int:
        """How many messages were sent and may or may not be stored."""
        return self._under_way - self._partly

    def add(self, published: Published) -> None:
        """Count acknowledged messages. Then none is under way."""
        self._under_way = self._partly = 0
        self.count += published.count
        for each in published.positions:
            ranges = self._ranges.setdefault(each.segment, [])
            last = ranges[-1] if ranges else None
            if last is not None and last.offset + last.count == each.offset:
                ranges[-1] = PositionRange(last.segment, last.offset, last.count + each.count)
            else:
                ranges.append(each)

    def stored_so_far(self, skipped: int) -> str:
        """The end of an error message: how many messages were stored before the error, and how to go on behind them."""
        if not self.count:
            return ""
        stored = f"{messages(self.count)} {'was' if self.count == 1 else 'were'} stored before that"
        return f"; {stored}: --skip {skipped + self.count} leaves out what is stored"

    def show(self, *, as_json: bool) -> None:
        """Print the result, as JSON or as text and a table."""
        seconds = max(self._clock.monotonic_seconds() - self._started_seconds, 1e-9)
        ranges = [each for segment in sorted(self._ranges) for each in self._ranges[segment]]
        if as_json:
            positions = [{"segment": r.segment, "offset": r.offset, "count": r.count} for r in ranges]
            print_json({"count": self.count, "seconds": round(seconds, 6), "positions": positions})
            return
        if len(ranges) == 1 and self.count == 1:
            print_lines(f"published 1 message at {ranges[0].segment}-{ranges[0].offset}")
            return
        # For a few messages the rate would measure only the time to connect.
        rate = f" ({self.count / seconds:,.0f} per second)" if seconds >= 1 else ""
        print_lines(f"published {messages(self.count)} in {seconds:.1f} s{rate}")
        if ranges:
            print_table(
                ("segment", "from offset", "to offset", "messages"),
                ((str(r.segment), r.offset, r.offset + r.count - 1, r.count) for r in ranges),
            )


def messages(count: int, more: str = "") -> str:
    """A number of messages in words."""
    return f"{count:,}{more} message" if count == 1 else f"{count:,}{more} messages"
