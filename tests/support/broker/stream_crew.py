"""Members of a stream group that work while everything around them fails, and what must be true of it in the end."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import httpx

from tests.support.broker.stream_requests import Member

RETRY_SECONDS = 60.0
PAUSE_SECONDS = 0.05


class AnyBroker(httpx.AsyncBaseTransport):
    """Sends each request to one of the `urls`, and again to another one while it is not served: all may be repeated."""

    def __init__(self, urls: Sequence[str], seed: int) -> None:
        self._urls, self._chance, self._inner = urls, random.Random(seed), httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body, last = await request.aread(), "nothing"
        try:
            async with asyncio.timeout(RETRY_SECONDS):
                while True:
                    url = httpx.URL(self._chance.choice(self._urls)).copy_with(raw_path=request.url.raw_path)
                    again = httpx.Request(request.method, url, headers=_headers(request), content=body)
                    again.extensions = request.extensions
                    try:
                        answer = await self._inner.handle_async_request(again)
                        if answer.status_code not in (429, 502, 503, 504):
                            return answer
                        last = f"{url}: {(await answer.aread()).decode()}"
                    except httpx.TransportError as error:
                        last = f"{url}: {error!r}"
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError as error:
            raise AssertionError(f"{request.method} {request.url} was not served; at last, by {last}") from error

    async def aclose(self) -> None:
        await self._inner.aclose()


def _headers(request: httpx.Request) -> list[tuple[str, str]]:
    return [(name, value) for name, value in request.headers.items() if name != "host"]


def any_broker(urls: Sequence[str], seed: int = 0) -> httpx.AsyncClient:
    """A client of all these brokers; the list may change. It does not wait long for one that stands still."""
    return httpx.AsyncClient(base_url="http://cluster", transport=AnyBroker(urls, seed), timeout=2)


class Watch:
    """What was published and delivered, and which commits were accepted."""

    def __init__(self) -> None:
        self.published: dict[str, int] = defaultdict(int)
        self.delivered: dict[str, list[int]] = defaultdict(list)
        self.fenced = 0
        self._holders: dict[tuple[int, int], tuple[str, int]] = {}
        self._started: dict[tuple[int, int], int] = {}
        self._accepted: dict[tuple[int, int], int] = defaultdict(int)
        self._positions: dict[int, int] = {}

    def told(self, member: Member) -> None:
        """The member has been told what it has."""
        for segment, epoch in member.holds.items():
            holder = (member.name, member.epoch)
            assert self._holders.setdefault((segment, epoch), holder) == holder, "two members have a segment"
            self._started.setdefault((segment, epoch), member.positions[segment])

    def delivered_to(self, messages: Sequence[dict[str, Any]]) -> None:
        """A member has read these."""
        for message in messages:
            self.delivered[message["key"]].append(message["value"])

    def committed(self, answer: dict[str, Any]) -> None:
        """These commits were accepted, and those refused."""
        for each in answer["committed"]:
            key = (each["segment"], each["epoch"])
            self._accepted[key] = max(self._accepted[key], each["position"])
        self.fenced += len(answer["fenced"])

    def described(self, group: dict[str, Any]) -> None:
        """The group is there now."""
        for each in group["segments"]:
            before = self._positions.get(each["segment"], 0)
            assert each["position"] >= before, f"the position of segment {each['segment']} goes back from {before}"
            self._positions[each["segment"]] = each["position"]

    def check(self) -> None:
        """All promises were kept."""
        for key, count in self.published.items():
            firsts = list(dict.fromkeys(self.delivered[key]))
            assert firsts == sorted(firsts), f"messages of {key} overtook each other"
            # The last one may be stored without an answer.
            assert firsts[:count] == list(range(count)), f"of {key} {count - len(firsts)} messages never came"
        for (segment, epoch), position in self._accepted.items():
            later = [start for (of, after), start in self._started.items() if of == segment and after > epoch]
            assert all(position <= start for start in later), f"two members' commits in segment {segment} count"

    @property
    def repeated(self) -> float:
        """How many times a message was delivered, in the mean."""
        return sum(map(len, self.delivered.values())) / max(sum(self.published.values()), 1)


class Worker:
    """A process of a member, as a task. It can be killed, and made to stand still."""

    def __init__(self, client: httpx.AsyncClient, name: str, watch: Watch, group: str, chance: random.Random) -> None:
        self.member, self._watch, self._chance = Member(client, name, group), watch, chance
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._task = asyncio.create_task(self._run(), name=f"member {name}")

    async def kill(self) -> None:
        """End it where it is."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def end(self) -> None:
        """End it; raises what has gone wrong in it."""
        if self._task.done() and not self._task.cancelled():
            self._task.result()
        await self.kill()

    async def _run(self) -> None:
        member = self.member
        await member.join()
        while True:
            self._watch.told(member)
            read = 0
            for segment in list(member.holds):
                page = await member.read(segment, limit=self._chance.randint(1, 40))
                self._watch.delivered_to(page["messages"])
                read += len(page["messages"])
                await self.goes_on.wait()
                if self._chance.random() < 0.7:
                    await self._commit(segment)
            if not read:
                for segment in member.holds:
                    await self._commit(segment)
            await self.goes_on.wait()
            answer = await member.beat(wait=0 if read else 0.2)
            if answer.status_code == 409:
                await member.join()
            else:
                answer.raise_for_status()

    async def _commit(self, segment: int) -> None:
        answer = await self.member.commit([segment])
        if answer.status_code == 409:
            self._watch.fenced += 1
        else:
            self._watch.committed(answer.raise_for_status().json())
