"""How often a group's claims may have a record of their own, and how far ahead of them messages are exposed."""

PER_SECOND = 20
"""So many claims a second have a record of their own, and so many in a row after a second without any."""
STEP_MS = 1000 // PER_SECOND
AHEAD_MS = 2 * STEP_MS
"""If claims come faster, as many messages as were claimed within this time are exposed ahead of the next claims."""
PAUSE_MS = 250
"""After so long without a claim, no message stays exposed that no consumer has. The budget has as much again then."""


class ClaimPace:
    """Counts the claims of a group. Times are ms of a monotonic clock.

    Each claim uses some of a budget that grows with time. While some is left, a claim's messages are exposed by a
    record of that moment, and no others are. Once it is used up, the group `is_hurried` until there is enough again:
    then a record for claims alone comes every `STEP_MS` at the most, and every record exposes `ahead` of the claims to
    come.

    The times do not grow with the time that a record takes. On a slow store they would expose messages ahead of any
    consumer that claims and acks over and over, and those would wait for a lease if all brokers died.
    """

    def __init__(self) -> None:
        self._used_until_ms: int | None = None
        self._last_claim_ms: int | None = None
        self._last_record_ms: int | None = None
        self._recent: list[tuple[int, int]] = []
        self._is_hurried = False

    def claimed(self, now_ms: int, messages: int) -> None:
        """Count a claim of so many messages."""
        full = now_ms - PER_SECOND * STEP_MS
        used = full if self._used_until_ms is None else max(self._used_until_ms, full)
        self._used_until_ms = min(used + STEP_MS, now_ms)
        self._is_hurried = self.is_hurried(now_ms) or self._used_until_ms > now_ms - STEP_MS
        self._last_claim_ms = now_ms
        # Claims within the same step count together.
        if self._recent and self._recent[-1][0] > now_ms - STEP_MS:
            began_ms, before = self._recent.pop()
            self._recent.append((began_ms, before + messages))
        else:
            self._recent = [each for each in self._recent if each[0] > now_ms - AHEAD_MS] + [(now_ms, messages)]

    def recorded(self, now_ms: int) -> None:
        """Note a record that exposes messages for claims, and has nothing else."""
        self._last_record_ms = now_ms

    def may_record(self, now_ms: int) -> bool:
        """Whether a record may be made for claims alone."""
        return self.ms_until_record(now_ms) == 0

    def ms_until_record(self, now_ms: int) -> int:
        """How long it takes until a record may be made for claims alone."""
        if self._last_record_ms is None or not self.is_hurried(now_ms):
            return 0
        return max(self._last_record_ms + STEP_MS - now_ms, 0)

    def is_hurried(self, now_ms: int) -> bool:
        """Whether claims come faster than records may."""
        return self._is_hurried and self._used_until_ms is not None and now_ms - self._used_until_ms < PAUSE_MS

    def is_paused(self, now_ms: int) -> bool:
        """Whether there was no claim for a while."""
        return self.ms_until_pause(now_ms) == 0

    def ms_until_pause(self, now_ms: int) -> int:
        """How long it takes until claims have paused, if none comes."""
        return 0 if self._last_claim_ms is None else max(self._last_claim_ms + PAUSE_MS - now_ms, 0)

    def ahead(self, now_ms: int) -> int:
        """How many messages are exposed ahead of claims: none unless the group is hurried."""
        if not self.is_hurried(now_ms):
            return 0
        return sum(messages for began_ms, messages in self._recent if began_ms > now_ms - AHEAD_MS)
