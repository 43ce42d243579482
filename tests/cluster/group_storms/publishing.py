"""Publishers that write down what was acknowledged."""

import asyncio
import itertools
import random
import time
from collections.abc import Callable
from typing import NamedTuple

from tests.cluster.group_storms.asking import Asking
from tests.cluster.group_storms.common_history import Published

KEYS = 10
"""Of each publisher."""
LONGEST_PAUSE_SECONDS = 0.04


class Kind(NamedTuple):
    """How a message is published: how long it is delayed, and whether it is one that nobody can work on."""

    delay_seconds: float | None = None
    is_poison: bool = False


class Publishing:
    """Messages of a topic, written down in `published`, and what should not have been answered in `wrong_answers`."""

    def __init__(
        self,
        asking: Asking,
        topic: str,
        chance: random.Random,
        published: list[Published],
        wrong_answers: list[str],
        kind: Callable[[], Kind] = Kind,
    ) -> None:
        self._asking, self._topic, self._chance, self._kind = asking, topic, chance, kind
        self._published, self._wrong_answers = published, wrong_answers
        self.goes_on = True

    async def publish(self, number: int) -> None:
        """One message at a time, each under its sequence: those of a key are stored in their order, once each."""
        counts = [itertools.count() for _ in range(KEYS)]
        for sequence in itertools.count():
            if not self.goes_on:
                return
            chosen = self._chance.randrange(KEYS)
            key, kind, index = f"{number}.{chosen}", self._kind(), next(counts[chosen])
            parameters = {"key": key, "producer": f"p{number}", "sequence": str(sequence)}
            if kind.delay_seconds is not None:
                parameters["delay_seconds"] = str(kind.delay_seconds)
            sent_at = time.monotonic()
            answer = await self._asking.until_answered(
                "POST", f"/v1/topics/{self._topic}/messages", params=parameters, content=f"{key} {index}"
            )
            if answer.status_code != 200:
                self._wrong_answers.append(f"publish: {answer.text}")
                return
            # The first of several attempts may have been stored.
            due_at = None if kind.delay_seconds is None else sent_at + kind.delay_seconds
            self._published.append(Published(key, index, time.monotonic(), due_at, kind.is_poison))
            await asyncio.sleep(self._chance.uniform(0.0, LONGEST_PAUSE_SECONDS))
