"""Requests about one consumer group `g` of one topic `t`."""

import asyncio
from typing import Any

import httpx

from tests.support.broker.http_broker import HttpBroker

T = "/v1/topics/t"
G = f"{T}/groups/g"


async def publish(broker: HttpBroker, *values: str, **headers: str) -> None:
    body = {"messages": [{"key": value, "value": value, "headers": headers} for value in values]}
    (await broker.client.post(f"{T}/messages", json=body)).raise_for_status()


async def publish_keys(broker: HttpBroker, *pairs: str) -> None:
    body = {"messages": [{"key": pair[0], "value": pair} for pair in pairs]}
    (await broker.client.post(f"{T}/messages", json=body)).raise_for_status()


async def claim(broker: HttpBroker, **body: Any) -> dict[str, Any]:
    answer: dict[str, Any] = (await broker.client.post(f"{G}/claims", json=body)).raise_for_status().json()
    return answer


async def values(broker: HttpBroker, **body: Any) -> list[str]:
    return [message["value"] for message in (await claim(broker, **body))["messages"]]


async def decide(broker: HttpBroker, verb: str, claimed: dict[str, Any], **body: Any) -> httpx.Response:
    """Ack, release or extend all messages of an answer."""
    parts = [{"claim": message["claim"], "id": message["id"]} for message in claimed["messages"]]
    return await broker.client.post(f"{G}/{verb}", json={"messages": parts, **body})


async def group(broker: HttpBroker) -> dict[str, Any]:
    found: dict[str, Any] = (await broker.client.get(G)).raise_for_status().json()
    return found


async def until_dead(broker: HttpBroker, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(20):
        while (await group(broker))["dead"] < count:
            await asyncio.sleep(0.02)
    found: list[dict[str, Any]] = (await broker.client.get("/v1/topics/t.dead/messages")).json()["messages"]
    return found
