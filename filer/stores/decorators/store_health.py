"""Whether the store answers: which calls have waited too long or fail again and again, and why.

To a caller that waits, a call that hangs and one that fails and is repeated are the same. So this module follows each
key from the first try on, until a try gets a definite answer or the caller stops trying. `InstrumentedStore` reports
the calls to it. It logs a stall within two seconds.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass

from filer.clock import Clock
from filer.errors import KeyRefused, OutcomeUnknown, StoreRefused, StoreUnreached
from filer.event_log import EventLog

# A stall is logged within 2 s: at the first look after this time.
STALL_SECONDS = 1.5
LOOK_SECONDS = 0.25
# A large call may take longer than that by this allowance. Sizes up to `USUAL_BYTES` have none.
USUAL_BYTES = 8 * 1024 * 1024
SLOWEST_BYTES_PER_SECOND = 4 * 1024 * 1024
# The size of an object that is read whole is not known before.
WHOLE_OBJECT_SECONDS = 5.0
# The longest pause between two tries is 2 s. Without a try for longer, the caller has given up.
GIVEN_UP_SECONDS = 3.0
# A store that stalls each call for a moment is one disturbance, not many.
QUIET_SECONDS = 5.0
REPEAT_FIRST_SECONDS, REPEAT_LONGEST_SECONDS = 10.0, 600.0
MOST_FAILING = 1000
MOST_TOLD = 20
WRITES = ("create", "replace")

_log = EventLog(__name__)


@dataclass(slots=True, eq=False)
class Call:
    """A call under way. `began_seconds` is infinite while a listing waits for its caller."""

    operation: str
    key: str
    began_seconds: float
    size_bytes: int = 0
    whole: bool = False

    @property
    def allowed_seconds(self) -> float:
        """How long it may take before it counts as stalled."""
        if self.whole:
            return WHOLE_OBJECT_SECONDS
        return STALL_SECONDS + max(self.size_bytes - USUAL_BYTES, 0) / SLOWEST_BYTES_PER_SECOND


@dataclass(slots=True)
class _Failing:
    """The tries of one operation on one key since its last definite answer."""

    began_seconds: float
    last_seconds: float
    cause: str
    detail: str
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Stall:
    """A call without success for `seconds`; `tries` of them have failed. `cause` is `timeout` while none has."""

    operation: str
    key: str
    seconds: float
    tries: int
    cause: str
    detail: str

    def __str__(self) -> str:
        tried = f"; {self.tries} {'try' if self.tries == 1 else 'tries'} failed, the last with" if self.tries else ":"
        return f"{self.operation} of {self.key!r} without success for {self.seconds:.1f} s{tried} {self.detail}"


def cause_of(error: BaseException) -> str:
    """The cause that an error names, else its kind, in a word: there are few of them, as a metric's label needs."""
    return getattr(error, "cause", None) or type(error).__name__


def is_trouble(error: BaseException) -> bool:
    """Whether an error says that the store does not do its work. Others are answers: not found, exists, changed.

    A key that no store accepts is the caller's mistake.
    """
    return not isinstance(error, KeyRefused) and isinstance(
        error, OutcomeUnknown | StoreUnreached | StoreRefused | OSError
    )


class StoreHealth:
    """Follows the calls to one store, and logs when it stalls and when it is back. Belongs to one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._calls: set[Call] = set()
        self._failing: dict[tuple[str, str], _Failing] = {}
        self._disturbance: _Disturbance | None = None
        # Set while there is something to look at: an idle broker wakes no task.
        self._busy = asyncio.Event()

    def begin(self, operation: str, key: str, size_bytes: int = 0, *, whole: bool = False) -> Call:
        """Note that a call begins. Pass it to `end`, however it ends."""
        call = Call(operation, key, self._clock.monotonic_seconds(), size_bytes, whole)
        self._calls.add(call)
        self._busy.set()
        return call

    def pause(self, call: Call) -> None:
        """Note that the store has returned a part of a listing, and the caller works on it."""
        call.began_seconds = math.inf

    def resume(self, call: Call) -> None:
        """Note that the caller asks for more of a listing."""
        call.began_seconds = self._clock.monotonic_seconds()

    def end(self, call: Call, error: BaseException | None) -> None:
        """Note that a call has ended with that error, or without one."""
        self._calls.discard(call)
        if error is None or isinstance(error, Exception):
            name = call.operation, call.key
            if error is None or not is_trouble(error):
                failed = self._failing.pop(name, None) if self._failing else None
                if call.operation in WRITES:
                    self._tell_slow(call, failed)
            else:
                self._failed(name, call, error)

    def _tell_slow(self, call: Call, failed: "_Failing | None") -> None:
        """Log a put that took as long as a stall does, with the tries that failed before it."""
        began_seconds = call.began_seconds if failed is None else min(call.began_seconds, failed.began_seconds)
        duration_seconds = self._clock.monotonic_seconds() - began_seconds
        if duration_seconds >= call.allowed_seconds:
            _log.warning(
                "put_slow",
                key=call.key,
                size_bytes=call.size_bytes,
                duration_seconds=round(duration_seconds, 3),
                tries=1 if failed is None else failed.tries + 1,
            )

    def _failed(self, name: tuple[str, str], call: Call, error: Exception) -> None:
        now_seconds, cause, detail = self._clock.monotonic_seconds(), cause_of(error), str(error)
        known = self._failing.get(name)
        if known is not None:
            known.last_seconds, known.cause, known.detail, known.tries = now_seconds, cause, detail, known.tries + 1
        elif len(self._failing) < MOST_FAILING:
            began_seconds = min(call.began_seconds, now_seconds)
            self._failing[name] = _Failing(began_seconds, now_seconds, cause, detail)

    def stalls(self) -> Sequence[Stall]:
        """All calls that are stalled now, the oldest first."""
        now_seconds = self._clock.monotonic_seconds()
        waiting = self._oldest_calls()
        self._forget_given_up(now_seconds, waiting)
        found = [stall for call in waiting.values() if (stall := self._stall_of(call, now_seconds)) is not None]
        found += [
            _as_stall(name, failing, now_seconds)
            for name, failing in self._failing.items()
            if name not in waiting and failing.tries > 1 and now_seconds - failing.began_seconds >= STALL_SECONDS
        ]
        return sorted(found, key=lambda stall: -stall.seconds)

    def why(self) -> Stall | None:
        """The stall that errors name to callers that wait for a put: the oldest write, else the oldest other call."""
        stalls = self.stalls()
        return next((stall for stall in stalls if stall.operation in WRITES), stalls[0] if stalls else None)

    def _oldest_calls(self) -> dict[tuple[str, str], Call]:
        oldest: dict[tuple[str, str], Call] = {}
        for call in self._calls:
            name = call.operation, call.key
            if name not in oldest or call.began_seconds < oldest[name].began_seconds:
                oldest[name] = call
        return oldest

    def _forget_given_up(self, now_seconds: float, waiting: dict[tuple[str, str], Call]) -> None:
        too_old = [
            name
            for name, failing in self._failing.items()
            if name not in waiting and now_seconds - failing.last_seconds > GIVEN_UP_SECONDS
        ]
        for name in too_old:
            del self._failing[name]

    def _stall_of(self, call: Call, now_seconds: float) -> Stall | None:
        failing = self._failing.get((call.operation, call.key))
        if failing is not None and now_seconds - failing.began_seconds >= call.allowed_seconds:
            return _as_stall((call.operation, call.key), failing, now_seconds)
        seconds = now_seconds - call.began_seconds
        if seconds < call.allowed_seconds:
            return None
        return Stall(call.operation, call.key, seconds, 0, "timeout", "no answer")

    async def watch(self) -> None:
        """Log what stalls, until cancelled."""
        while True:
            await self._busy.wait()
            await self._clock.sleep(LOOK_SECONDS)
            self.look()
            if not self._calls and not self._failing and self._disturbance is None:
                self._busy.clear()

    def look(self) -> None:
        """Log a disturbance when it begins, with each new cause, now and then while it lasts, and when it is over."""
        stalls, now_seconds = self.stalls(), self._clock.monotonic_seconds()
        if stalls:
            if self._disturbance is None:
                self._disturbance = _Disturbance(now_seconds - stalls[0].seconds)
            if self._disturbance.must_tell(stalls, now_seconds):
                oldest = stalls[0]
                _log.warning(
                    "store_stalled",
                    operation=oldest.operation,
                    key=oldest.key,
                    duration_seconds=round(oldest.seconds, 3),
                    tries=oldest.tries,
                    cause=oldest.cause,
                    error=oldest.detail,
                    calls=len(stalls),
                )
        elif self._disturbance is not None and self._disturbance.is_over(now_seconds):
            lasted_seconds = self._disturbance.last_seconds - self._disturbance.began_seconds
            _log.info("store_recovered", duration_seconds=round(lasted_seconds, 3))
            self._disturbance = None


class _Disturbance:
    """A time in which the store stalls again and again, and which stalls of it are logged already."""

    def __init__(self, began_seconds: float) -> None:
        self.began_seconds = self.last_seconds = began_seconds
        self._told: set[tuple[str, str]] = set()
        self._next_seconds, self._pause_seconds = -math.inf, REPEAT_FIRST_SECONDS

    def must_tell(self, stalls: Sequence[Stall], now_seconds: float) -> bool:
        """Whether to log these stalls now."""
        self.last_seconds = now_seconds
        kind = stalls[0].operation, stalls[0].cause
        is_new = kind not in self._told and len(self._told) < MOST_TOLD
        if is_new:
            self._told.add(kind)
        elif now_seconds < self._next_seconds:
            return False
        self._next_seconds = now_seconds + self._pause_seconds
        self._pause_seconds = min(self._pause_seconds * 2, REPEAT_LONGEST_SECONDS)
        return True

    def is_over(self, now_seconds: float) -> bool:
        """Whether nothing has stalled for a while."""
        return now_seconds - self.last_seconds >= QUIET_SECONDS


def _as_stall(name: tuple[str, str], failing: _Failing, now_seconds: float) -> Stall:
    seconds = now_seconds - failing.began_seconds
    return Stall(*name, seconds, failing.tries, failing.cause, failing.detail)
