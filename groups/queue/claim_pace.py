"""How often a group's claims may have a record of their own, and how far ahead of them messages are exposed."""

import math

PER_SECOND = 20
"""So many claims a second have a record of their own, and so many in a row after a second without any."""
STEP_MS = 1000 // PER_SECOND
AHEAD_MS = 2 * STEP_MS
"""Where claims come faster, as much as was claimed within this time is exposed ahead of the next ones."""
PAUSE_MS = 250
"""After so long without a claim, nothing stays exposed that is with nobody. The budget has as much again then."""
RECORDS_APART = 8
"""Where records take long, claims that follow one another within so many of them come faster than records may."""


class ClaimPace:
    """Counts the claims of a group. Times are ms of a monotonic clock.

    Each takes something of a budget that grows with time. While there is some, what a claim gets is exposed by a record
    of that moment, and nothing else is. Once it is used up, the group `is_hurried` until there is enough again: then a
    record for claims alone comes every `STEP_MS` at the most, and every record exposes `ahead` of the claims to come.

    A consumer that claims and acks waits for one record if its ack's record exposes what it claims next, and for two
    otherwise. That is half as fast where a record takes most of its time, as on a store with billed puts. So all of
    these times grow with what a record takes.
    """

    def __init__(self) -> None:
        self._used_until_ms: int | None = None
        self._last_claim_ms: int | None = None
        self._last_record_ms: int | None = None
        self._recent: list[tuple[int, int]] = []
        self._is_hurried = False
        self._recording_since_ms = 0
        self._record_ms: float | None = None
        # What a claim takes of the budget; claims of how long before say how many will come; what is a pause.
        self._step_ms, self._looked_at_ms, self._pause_ms = STEP_MS, AHEAD_MS, PAUSE_MS

    def claimed(self, now_ms: int, messages: int) -> None:
        """Somebody is given so many messages."""
        full = now_ms - max(PER_SECOND * STEP_MS, 2 * self._step_ms)
        used = full if self._used_until_ms is None else max(self._used_until_ms, full)
        self._used_until_ms = min(used + self._step_ms, now_ms)
        self._is_hurried = self.is_hurried(now_ms) or self._used_until_ms > now_ms - self._step_ms
        self._last_claim_ms = now_ms
        # The last step that is not over counts together.
        if self._recent and self._recent[-1][0] > now_ms - STEP_MS:
            began_ms, before = self._recent.pop()
            self._recent.append((began_ms, before + messages))
        else:
            behind_ms = now_ms - self._looked_at_ms
            self._recent = [each for each in self._recent if each[0] > behind_ms] + [(now_ms, messages)]

    def recording(self, now_ms: int, *, for_claims: bool) -> None:
        """A record goes on its way. `for_claims`: it tells of nothing else."""
        self._recording_since_ms = now_ms
        if for_claims:
            self._last_record_ms = now_ms

    def recorded(self, now_ms: int) -> None:
        """It is stored."""
        took_ms = now_ms - self._recording_since_ms
        known_ms = took_ms if self._record_ms is None else self._record_ms
        self._record_ms = known_ms + (took_ms - known_ms) / 4
        slow_ms = round(RECORDS_APART * self._record_ms)
        self._step_ms, self._looked_at_ms = max(STEP_MS, slow_ms), max(AHEAD_MS, slow_ms)
        self._pause_ms = max(PAUSE_MS, slow_ms)

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
        return self._is_hurried and self._used_until_ms is not None and now_ms - self._used_until_ms < self._pause_ms

    def is_paused(self, now_ms: int) -> bool:
        """Whether there was no claim for a while."""
        return self.ms_until_pause(now_ms) == 0

    def ms_until_pause(self, now_ms: int) -> int:
        """How long it takes until claims have paused, if none comes."""
        return 0 if self._last_claim_ms is None else max(self._last_claim_ms + self._pause_ms - now_ms, 0)

    def ahead(self, now_ms: int) -> int:
        """How many messages are exposed ahead of claims: none unless the group is hurried.

        As many as are claimed within `AHEAD_MS`, or while two records are stored, and no fewer than one claim had.
        """
        if not self.is_hurried(now_ms):
            return 0
        looked_at_ms = self._looked_at_ms
        recent = [messages for began_ms, messages in self._recent if began_ms > now_ms - looked_at_ms]
        ahead_ms = max(AHEAD_MS, round(2 * (self._record_ms or 0)))
        return max(math.ceil(sum(recent) * ahead_ms / looked_at_ms), max(recent, default=0))
