"""Requests of members of one stream group `g` of one topic `t`."""

from collections.abc import Iterable
from typing import Any

import httpx

T = "/v1/topics/t"
G = f"{T}/groups/g"


def epochs(document: dict[str, Any], name: str = "segments") -> dict[int, int]:
    """The segments of an answer, with their epochs."""
    return {each["segment"]: each["epoch"] for each in document[name]}


class Member:
    """A member as one writes it with curl: it does what it is told, and keeps nothing but that.

    `holds` are its segments, by epoch, and `positions` where it goes on reading them. `let_go` is what it has released,
    which it never takes again under that epoch; `released` is what of that it names in its next heartbeat.
    """

    def __init__(self, client: httpx.AsyncClient, name: str, group: str = G) -> None:
        self.client, self.name, self.group = client, name, group
        self.topic = group.partition("/groups/")[0]
        self.epoch = 0
        self.holds: dict[int, int] = {}
        self.positions: dict[int, int] = {}
        self.released: list[dict[str, int]] = []
        self.let_go: set[tuple[int, int]] = set()

    async def join(self) -> dict[str, Any]:
        answer = (await self.client.post(f"{self.group}/members", json={"member_id": self.name})).raise_for_status()
        told: dict[str, Any] = answer.json()
        self.epoch, self.holds, self.released, self.let_go = told["member_epoch"], {}, [], set()
        self.take(told)
        return told

    async def beat(self, **body: Any) -> httpx.Response:
        """A heartbeat, whose answer it heeds."""
        held = [{"segment": segment, "epoch": epoch} for segment, epoch in self.holds.items()]
        told = {"member_epoch": self.epoch, "segments": held, "released": self.released, **body}
        answer = await self.client.post(f"{self.group}/members/{self.name}/heartbeats", json=told)
        if answer.status_code == 200:
            self.take(answer.json())
        return answer

    def take(self, told: dict[str, Any]) -> None:
        """Have what it is told, from the position that it is told."""
        mine = [each for each in told["segments"] if (each["segment"], each["epoch"]) not in self.let_go]
        for each in mine:
            if self.holds.get(each["segment"]) != each["epoch"]:
                self.positions[each["segment"]] = each["position"]
        again = [{name: each[name] for name in ("segment", "epoch")} for each in told["segments"] if each not in mine]
        self.holds = {each["segment"]: each["epoch"] for each in mine}
        self.released = told["release"] + again
        self.let_go |= {(each["segment"], each["epoch"]) for each in told["release"]}

    async def settle(self) -> dict[int, int]:
        """Heartbeats until it has been told the same twice; what it has then."""
        before = None
        while before != self.holds:
            before = self.holds
            (await self.beat()).raise_for_status()
        return self.holds

    async def read(self, segment: int, **params: Any) -> dict[str, Any]:
        """The next messages of a segment. They are done at `next_offset`."""
        query = {"offset": self.positions[segment], **params}
        answer = await self.client.get(f"{self.topic}/segments/{segment}/messages", params=query)
        page: dict[str, Any] = answer.raise_for_status().json()
        self.positions[segment] = page["next_offset"]
        return page

    async def commit(self, segments: Iterable[int] | None = None) -> httpx.Response:
        """Commit how far it has read."""
        positions = [
            {"segment": each, "epoch": self.holds[each], "position": self.positions[each]}
            for each in (self.holds if segments is None else segments)
        ]
        return await self.client.post(f"{self.group}/commits", json={"member_id": self.name, "positions": positions})

    async def work(self) -> list[str]:
        """Read what there is in all its segments, and commit that; the values of the messages."""
        values = []
        for segment in list(self.holds):
            values += [message["value"] for message in (await self.read(segment))["messages"]]
        if self.holds:
            (await self.commit()).raise_for_status()
        return values
