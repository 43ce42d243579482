"""Requests about the topic group `shop`, its members, and consumer groups of any of them."""

from typing import Any

import httpx

from tests.support.broker.http_broker import HttpBroker

SHOP = "/v1/topic-groups/shop"


async def make_shop(broker: HttpBroker, *topics: str, **settings: Any) -> None:
    answer = await broker.client.put(SHOP, json={"topics": list(topics or ("orders", "payments")), **settings})
    assert answer.status_code in (200, 201), answer.text


async def publish_to(broker: HttpBroker, topic: str, *values: Any, key: str | None = "k", **about: Any) -> None:
    body = {"messages": [{"key": key, "value": value, **about} for value in values]}
    (await broker.client.post(f"/v1/topics/{topic}/messages", json=body)).raise_for_status()


class Group:
    """A consumer group of a topic, as whoever has curl asks it."""

    def __init__(self, broker: HttpBroker, topic: str, name: str = "g") -> None:
        self.client, self.path = broker.client, f"/v1/topics/{topic}/groups/{name}"

    async def put(self, **settings: Any) -> dict[str, Any]:
        return dict((await self.client.put(self.path, json=settings)).raise_for_status().json())

    async def claim(self, **body: Any) -> dict[str, Any]:
        return dict((await self.client.post(f"{self.path}/claims", json=body)).raise_for_status().json())

    async def decide(self, verb: str, claimed: dict[str, Any], **body: Any) -> httpx.Response:
        """Ack, release or extend all messages of an answer."""
        parts = [{"claim": message["claim"], "id": message["id"]} for message in claimed["messages"]]
        return await self.client.post(f"{self.path}/{verb}", json={"messages": parts, **body})

    async def work(self, **body: Any) -> list[Any]:
        """Claim what there is and ack it; the values of the messages."""
        claimed = await self.claim(**body)
        if claimed["messages"]:
            (await self.decide("acks", claimed)).raise_for_status()
        return [message["value"] for message in claimed["messages"]]

    async def told(self) -> dict[str, Any]:
        return dict((await self.client.get(self.path)).raise_for_status().json())

    async def seen(self, state: str, **query: Any) -> list[Any]:
        """The messages of that state, page after page."""
        found: list[Any] = []
        while True:
            answer = await self.client.get(f"{self.path}/messages", params={"state": state, **query})
            page = answer.raise_for_status().json()
            found += [message["value"] for message in page["messages"]]
            if page["next"] is None:
                return found
            query["after"] = page["next"]
