"""Publishers of a topic and workers of its queue group, which write down what they see."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.cluster.group_storms.answers import ARROW, Given, arrow_answer, json_answer
from tests.cluster.group_storms.asking import Asking
from tests.cluster.group_storms.common_history import Fault, Published
from tests.cluster.group_storms.parts import Part, by_claim, one_by_one
from tests.cluster.group_storms.publishing import Kind, Publishing
from tests.cluster.group_storms.queue_history import Decided, Delivered, QueueHistory, Unanswered
from tests.cluster.group_storms.queue_verdict import around, judge
from tests.cluster.group_storms.terms import END_SECONDS, Terms
from tests.cluster.group_storms.verdict import Verdict
from tests.support.cluster.cluster import Cluster

DELAY_SECONDS = 1.0
SCATTERED_CHANCE, WHOLE_CHANCE = 0.4, 0.5
QUIET_SECONDS = 5.0
"""Where some messages may be left in the end, workers get none for so long. They ask for a second at a time."""
OTHERS = 100
"""The number of the publisher of another member: by it the keys of its messages are told apart."""


class QueueLoad:
    """`publishers` and `workers` on a topic with a group `g`, through brokers at random.

    With `group_of_topics` the topic is a member of a topic group of that name, and as much is published to another
    member. Some claims come as JSON, others as Arrow with `scattered` ranges, if there are no brokers that refuse them.
    """

    consumer_processes: Sequence[Any] = ()

    def __init__(
        self,
        urls: Callable[[], Sequence[str]],
        topic: str,
        *,
        order: str,
        seed: int,
        publishers: int = 2,
        workers: int = 6,
        group_of_topics: str | None = None,
        scattered: bool = True,
        terms: Terms | None = None,
    ) -> None:
        self._terms = terms or Terms()
        self.topic, self._order, self._scattered = topic, order, scattered
        self._group_of_topics, self._other = group_of_topics, f"{topic}-other"
        self.topics = (group_of_topics or topic,)
        self._chance = random.Random(seed)
        self._publishers, self._workers = publishers, workers
        self._asking = Asking(urls, self._chance)
        self._answers = itertools.count()
        self._working = True
        self.history = QueueHistory()
        self._publishing = Publishing(
            self._asking, topic, self._chance, self.history.published, self.history.wrong_answers, self._kind
        )
        self._others: list[Published] = []
        self._publishing_others = Publishing(
            self._asking, self._other, self._chance, self._others, self.history.wrong_answers
        )
        self._acked: set[str] = set()

    async def create(self, cluster: Cluster, **settings: Any) -> None:
        """Make the topic."""
        if self._group_of_topics is None:
            await cluster.create_topic(self.topic, **settings)
        else:
            topics = {"topics": [self.topic, self._other], "splittable": True}
            made = await self._asking.until_answered(
                "PUT", f"/v1/topic-groups/{self._group_of_topics}", json=topics | settings
            )
            made.raise_for_status()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """A context in which they run. At its end all is done. Raises `TimeoutError` if it does not get so."""
        settings = {
            "lease_seconds": self._terms.lease_seconds,
            "backoff_seconds": [0.1],
            "max_deliveries": self._terms.max_deliveries,
            "max_in_flight": self._terms.max_in_flight,
        }
        await self._asking.until_answered("PUT", self._group, json=settings | {"order": self._order})
        publishers = [asyncio.create_task(self._publishing.publish(number)) for number in range(self._publishers)]
        if self._group_of_topics is not None:
            publishers.append(asyncio.create_task(self._publishing_others.publish(OTHERS)))
        workers = [asyncio.create_task(self._work()) for _ in range(self._workers)]
        try:
            yield
            self._publishing.goes_on = self._publishing_others.goes_on = False
            await asyncio.gather(*publishers)
            await self._until_done()
        except BaseException:
            # Brokers may be gone: whoever asks them would ask for ever.
            for task in (*publishers, *workers):
                task.cancel()
            raise
        finally:
            self._publishing.goes_on = self._publishing_others.goes_on = self._working = False
            outcomes = await asyncio.gather(*publishers, *workers, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._asking.close()

    async def each_acknowledged(self, count: int, *, timeout_seconds: float = 60.0) -> None:
        """Wait until so many messages more of each publisher were published, and as many acked by anybody."""
        published, acked = len(self.history.published), len(self._acked)
        wanted = count * self._publishers
        async with asyncio.timeout(timeout_seconds):
            while len(self.history.published) < published + wanted or len(self._acked) < acked + wanted:
                await asyncio.sleep(0.05)

    def struck(self, name: str, began_at: float) -> None:
        """A fault has been, from then until now."""
        self.history.faults.append(Fault(name, began_at, time.monotonic()))

    async def verdict(self) -> Verdict:
        """Whether all this may be."""
        letters = await self.dead_values()
        return judge(self.history, letters, order=self._order, terms=self._terms)

    def around(self, complaint: str) -> list[str]:
        """Everything that was seen of what a complaint names."""
        return around(self.history, complaint)

    async def dead_values(self) -> list[str]:
        """The values of all dead letters."""
        found: list[str] = []
        marker: dict[str, str] = {}
        while True:
            answer = await self._asking.until_answered(
                "GET", f"/v1/topics/{self.topic}.dead/messages", params={"limit": "1000", **marker}
            )
            if answer.status_code == 404 or not (messages := answer.json()["messages"]):
                return found
            found += [message["value"] for message in messages]
            marker = {"marker": answer.json()["marker"]}

    def _kind(self) -> Kind:
        is_delayed = self._order == "none" and self._chance.random() < 0.1
        return Kind(DELAY_SECONDS if is_delayed else None, self._chance.random() < 0.05)

    @property
    def _group(self) -> str:
        return f"/v1/topics/{self.topic}/groups/g"

    async def _until_done(self) -> None:
        """Wait until the group has no message left, except those that no worker can get while leases run.

        Workers have to have had the time to get all others: they ask again and again.
        """
        async with asyncio.timeout(END_SECONDS):
            began_at = time.monotonic()
            while True:
                told = (await self._asking.until_answered("GET", self._group)).json()
                left = len(self.history.with_nobody(self._terms.max_deliveries)) if self._terms.outlasts else 0
                latest_at = max([began_at, *(each.received_at for each in self.history.delivered[-1:])])
                is_quiet = not left or time.monotonic() - latest_at >= QUIET_SECONDS
                if is_quiet and told["lag"]["messages"] + told.get("delayed", 0) <= left:
                    return
                await asyncio.sleep(0.2)

    # -- workers ---------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        poison: set[str] = set()
        while self._working:
            given = await self._claim()
            if given is None:
                return
            await asyncio.sleep(self._terms.pause_seconds)
            if given:
                poison |= {each.value for each in self.history.published[-1000:] if each.is_poison}
                await self._decide_on(given, poison)

    async def _claim(self) -> list[Given] | None:
        """What it is given, mostly nothing. None: it was answered what may not be."""
        asked: dict[str, Any] = {"max": self._chance.choice(self._terms.most), "wait": 1}
        is_arrow, asked_at = self._scattered and self._chance.random() < SCATTERED_CHANCE, time.monotonic()
        if is_arrow:
            asked["scattered"] = True
        headers = {"accept": ARROW} if is_arrow else {}
        # What a claim whose answer is lost has given out comes again by itself.
        answer = await self._asking.once("POST", f"{self._group}/claims", json=asked, headers=headers)
        received_at = time.monotonic()
        if answer is None:
            self.history.unanswered.append(Unanswered(asked["max"], asked_at, received_at))
            return []
        if answer.status_code != 200:
            self.history.wrong_answers.append(f"claims: {answer.text}")
            return None
        found = arrow_answer(answer.content) if is_arrow else json_answer(answer.json())
        if isinstance(found, str):
            self.history.wrong_answers.append(f"claims: {found}")
            return None
        number = next(self._answers)
        self.history.scattered += sum(part.is_scattered for part in by_claim(found))
        self.history.delivered += [
            Delivered(
                each.message,
                each.value,
                each.deliveries,
                number,
                place,
                asked_at,
                received_at,
                self._terms.lease_seconds,
            )
            for place, each in enumerate(found)
        ]
        return found

    async def _decide_on(self, given: Sequence[Given], poison: set[str]) -> None:
        """Ack, mostly; be late sometimes, give back, or give up. Acks are sometimes sent twice."""
        if self._chance.random() < 0.04 and not self._terms.outlasts:
            await asyncio.sleep(self._terms.lease_seconds * 1.3)
        dead = [each for each in given if each.value in poison]
        rest = [each for each in given if each.value not in poison]
        if dead:
            await self._decide("releases", one_by_one(dead), {"dead": True, "reason": "poison"}, told="dead")
        if not rest:
            return
        # Who has nothing else of a claim names all of it, or each of its messages.
        parts = by_claim(rest) if not dead and self._chance.random() < WHOLE_CHANCE else one_by_one(rest)
        if self._chance.random() < 0.08:
            await self._decide("releases", parts, {"delay_seconds": self._chance.choice([0, 0.3])})
            return
        for _ in range(self._chance.choice([1, 1, 1, 2])):
            await self._decide("acks", parts, {})

    async def _decide(self, verb: str, parts: Sequence[Part], body: dict[str, Any], *, told: str = "") -> None:
        sent_at = time.monotonic()
        answer = await self._asking.until_answered(
            "POST", f"{self._group}/{verb}", json={"messages": [part.named for part in parts], **body}
        )
        answered_at = time.monotonic()
        if answer.status_code not in (200, 409):
            self.history.wrong_answers.append(f"{verb}: {answer.text}")
            return
        results = answer.json()["results"] if answer.status_code == 200 else [{"accepted": []}] * len(parts)
        for part, result in zip(parts, results, strict=True):
            for each, held in part.outcomes(result["accepted"]):
                decided = Decided(each.message, each.deliveries, told or verb, sent_at, answered_at, held)
                self.history.decided.append(decided)
                if verb == "acks" and held:
                    self._acked.add(each.message)
