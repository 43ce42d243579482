"""A member of a stream group, which writes down what it sees, and to which things are done."""

import asyncio
import random
import time
from collections.abc import Iterable
from typing import Any

import httpx

from tests.cluster.group_storms.asking import NOT_NOW_SECONDS, Asking
from tests.cluster.group_storms.stream_history import (
    AskedBack,
    Change,
    ChangeName,
    Committed,
    Given,
    Read,
    Start,
    StreamHistory,
    Tenure,
)

BEATS_PER_SESSION = 4
QUIET_SECONDS = 0.3
"""So long a heartbeat waits where there was nothing to read."""
MOST_READ = 40
COMMIT_CHANCE, STALE_CHANCE = 0.6, 0.3
MOST_OVER = 10
"""A member that is fenced remembers so much of what it had, to try whether a commit of it still counts."""


class StreamMember:
    """One process of the member `name`, as a task. It does what it is told, from one request to the next.

    It can be killed, made to stand still, and cut off: then its requests and their answers are lost. Of what it has no
    more it tries to commit something now and then, as a process does that was slow.
    """

    def __init__(self, asking: Asking, topic: str, name: str, history: StreamHistory, chance: random.Random) -> None:
        self._asking, self._topic, self.name = asking, topic, name
        self._group = f"/v1/topics/{topic}/groups/g"
        self._history, self._chance = history, chance
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._is_cut = self._ends = False
        self._attempts = 0
        """How often the last request was sent."""
        self.start = Start(name, 0)
        self._session_seconds, self._beaten_at = 0.0, 0.0
        self._positions: dict[Tenure, int] = {}
        self._known: set[Tenure] = set()
        self._asked_back: set[Tenure] = set()
        self._let_go: set[Tenure] = set()
        self._released: set[Tenure] = set()
        self._over: list[tuple[Start, Tenure, int]] = []
        self._task = asyncio.create_task(self._run(), name=f"member {name}")

    # -- what is done to it ----------------------------------------------------------------------------------

    async def kill(self) -> None:
        """End it where it is. Raises what had gone wrong in it."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    async def leave(self) -> None:
        """Have it commit what it has done, and leave the group. It does so too where nobody waits for it any more."""
        self._ends = True
        await asyncio.shield(self._task)

    def pause(self) -> None:
        """Have it stand still; what it has asked is answered, and it does not see it."""
        self._goes_on.clear()

    def resume(self) -> None:
        """Have it go on, as if nothing had been."""
        self._goes_on.set()

    def cut_off(self) -> None:
        """Have none of its requests arrive, and none of the answers."""
        self._is_cut = True

    def heal(self) -> None:
        """Have it reach brokers again."""
        self._is_cut = False

    def was(self, name: ChangeName, began_at: float) -> None:
        """Write down that this was done to it."""
        self._history.changes.append(Change(name, self.start, began_at, time.monotonic()))

    # -- what it does ----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        await self._join()
        while not self._ends:
            read = 0
            for tenure in list(self._positions):
                read += await self._read(tenure)
                if self._chance.random() < COMMIT_CHANCE:
                    await self._commit([tenure])
            if not read:
                await self._commit(self._positions)
            await self._commit_what_is_over()
            if self._released or not read or time.monotonic() >= self._beaten_at + self._beat_seconds:
                await self._beat(wait_seconds=0.0 if read or self._released else QUIET_SECONDS)
        began_at = time.monotonic()
        await self._commit(self._positions)
        target = f"{self._group}/members/{self.name}"
        await self._ask("DELETE", target, params={"member_epoch": self.start.number})
        self.was("leave", began_at)

    @property
    def _beat_seconds(self) -> float:
        return self._session_seconds / BEATS_PER_SESSION

    async def _join(self) -> None:
        began_at = time.monotonic()
        answer = await self._ask("POST", f"{self._group}/members", json={"member_id": self.name})
        if answer.status_code != 201:
            raise AssertionError(f"join: {answer.text}")
        told = answer.json()
        self._over = [*((self.start, *each) for each in self._positions.items()), *self._over][:MOST_OVER]
        self.start, self._session_seconds = Start(self.name, told["member_epoch"]), told["session_seconds"]
        self._positions = {}
        self._known, self._asked_back, self._let_go, self._released = set(), set(), set(), set()
        self.was("join", began_at)
        self._heed(told)

    async def _beat(self, *, wait_seconds: float) -> None:
        body = {
            "member_epoch": self.start.number,
            "segments": [each._asdict() for each in self._positions],
            "released": [each._asdict() for each in self._released],
            "wait": min(wait_seconds, self._beat_seconds),
        }
        self._beaten_at = time.monotonic()
        answer = await self._ask("POST", f"{self._group}/members/{self.name}/heartbeats", json=body)
        if answer.status_code == 409:
            await self._join()
        elif answer.status_code == 200:
            self._heed(answer.json())
        else:
            raise AssertionError(f"heartbeat: {answer.text}")

    def _heed(self, told: dict[str, Any]) -> None:
        """Have what it is told, but for what it has let go, which it names again."""
        now = time.monotonic()
        told_to_release = {Tenure(each["segment"], each["epoch"]) for each in told["release"]}
        for tenure in told_to_release - self._asked_back:
            self._asked_back.add(tenure)
            self._history.asked_back.append(AskedBack(self.start, tenure, now))
        mine: dict[Tenure, int] = {}
        again: set[Tenure] = set()
        for each in told["segments"]:
            tenure, position = Tenure(each["segment"], each["epoch"]), each["position"]
            if tenure not in self._known:
                self._known.add(tenure)
                self._history.given.append(Given(self.start, tenure, position, now))
            if tenure in self._let_go:
                again.add(tenure)
            else:
                mine[tenure] = self._positions.get(tenure, position)
        over = [(self.start, *each) for each in self._positions.items() if each[0] not in mine]
        self._over = [*over, *self._over][:MOST_OVER]
        self._positions, self._released = mine, told_to_release | again
        self._let_go |= told_to_release

    async def _read(self, tenure: Tenure) -> int:
        """Read on in a segment; how many messages there were."""
        first = self._positions[tenure]
        query = {"offset": first, "limit": self._chance.randint(1, MOST_READ)}
        answer = await self._ask("GET", f"/v1/topics/{self._topic}/segments/{tenure.segment}/messages", params=query)
        if answer.status_code != 200:
            raise AssertionError(f"read: {answer.text}")
        page = answer.json()
        values = tuple(each["value"] for each in page["messages"])
        if values:
            offsets = [each["offset"] for each in page["messages"]]
            if offsets != list(range(first, page["next_offset"])):
                self._history.wrong_answers.append(f"segment {tenure.segment} from {first} on has {offsets}")
            self._history.read.append(Read(self.start, tenure, first, values, time.monotonic()))
        self._positions[tenure] = page["next_offset"]
        return len(values)

    async def _commit(self, tenures: Iterable[Tenure]) -> None:
        """Commit how far it has read in these."""
        if wanted := {tenure: self._positions[tenure] for tenure in tenures}:
            await self._commit_as(self.start, wanted)

    async def _commit_what_is_over(self) -> None:
        if self._over and self._chance.random() < STALE_CHANCE:
            start, tenure, position = self._over.pop()
            await self._commit_as(start, {tenure: position})

    async def _commit_as(self, start: Start, wanted: dict[Tenure, int]) -> None:
        positions = [{**tenure._asdict(), "position": position} for tenure, position in wanted.items()]
        sent_at, held = time.monotonic(), set[Tenure]()
        refused = None
        try:
            answer = await self._ask(
                "POST", f"{self._group}/commits", json={"member_id": self.name, "positions": positions}
            )
            if answer.status_code == 200:
                held = {Tenure(each["segment"], each["epoch"]) for each in answer.json()["committed"]}
            elif answer.status_code != 409 or answer.json()["type"] != "urn:braidmq:member-fenced":
                raise AssertionError(f"commit: {answer.text}")
            # Where an answer was lost, the commit may have held, and be forgotten by the time at which it is repeated.
            refused = False if self._attempts == 1 else None
        finally:
            # It may be killed while it waits: then nobody knows.
            now = time.monotonic()
            self._history.committed += [
                Committed(start, tenure, position, sent_at, now, True if tenure in held else refused)
                for tenure, position in wanted.items()
            ]

    async def _ask(self, method: str, path: str, **request: Any) -> httpx.Response:
        """The answer of any broker, in the end."""
        self._attempts = 0
        while True:
            await self._goes_on.wait()
            answer = None
            if not self._is_cut:
                self._attempts += 1
                answer = await self._asking.once(method, path, **request)
            else:
                await asyncio.sleep(NOT_NOW_SECONDS)
            await self._goes_on.wait()
            if answer is not None and not self._is_cut:
                return answer
