"""Attacks by consumer groups: claims, acks, members, and groups without end."""

import asyncio
import contextlib
import json
import time
from collections import Counter

import aiohttp
import httpx

from bench.attacking.attack import MIB, NDJSON, TOPIC, Attack, Request, Seen, at_once, by_clients, make_topic, publish

_WORK, _WORK_ROWS, _MOST_DECIDED, _MOST_POLLS = "work", 100_000, 10_000, 1_000
_OF_WORK, _OF_OTHERS = f"/v1/topics/{_WORK}/groups", f"/v1/topics/{TOPIC}/groups"


def _work(url: str) -> None:
    make_topic(url, _WORK)
    httpx.put(f"{url}{_OF_WORK}/acking", json={"mode": "queue"}).raise_for_status()
    publish(url, _WORK, b'{"key":"k","value":"v"}\n' * _WORK_ROWS, content_type=NDJSON)


def _crew(url: str) -> None:
    httpx.put(f"{url}{_OF_OTHERS}/crew", json={"mode": "stream"}).raise_for_status()


def _claim(url: str) -> Request:
    body = {"max": _MOST_DECIDED}
    return lambda session, number: session.post(f"{url}{_OF_WORK}/hoarders/claims", json=body)


def _claim_with_groups(url: str) -> Request:
    """Each request has a group of its own, which begins at the oldest message."""
    body = {"max": _MOST_DECIDED}
    return lambda session, number: session.post(f"{url}{_OF_WORK}/hoarders-{number}/claims", json=body)


def _poll(url: str) -> Request:
    return lambda session, number: session.post(f"{url}{_OF_OTHERS}/waiting/claims", json={"max": 1, "wait": 2})


def _join_by_long_names(url: str) -> Request:
    body = json.dumps({"member_id": "m" * 900_000})
    return lambda session, number: session.post(f"{url}{_OF_OTHERS}/crew/members", data=body)


def _join(url: str) -> Request:
    """A member more with each request, under the longest name that there may be."""
    return lambda session, number: session.post(
        f"{url}{_OF_OTHERS}/crew/members", json={"member_id": f"{number:0200d}"}
    )


def _ack(ranges: int) -> "_AckRanges":
    return _AckRanges(ranges)


class _AckRanges:
    """Acks of single messages, the same ones again and again."""

    def __init__(self, ranges: int) -> None:
        self._ranges = ranges

    def __call__(self, url: str) -> Request:
        parts: list[dict[str, str]] = []
        while len(parts) < _MOST_DECIDED:
            answer = httpx.post(f"{url}{_OF_WORK}/acking/claims", json={"max": _MOST_DECIDED}, timeout=30)
            messages = answer.raise_for_status().json()["messages"]
            parts += [{"claim": each["claim"], "id": each["id"]} for each in messages]
        body = json.dumps({"messages": (parts * (self._ranges // len(parts) + 1))[: self._ranges]})
        sent = {"content-type": "application/json"}
        return lambda session, number: session.post(f"{url}{_OF_WORK}/acking/acks", data=body, headers=sent)


def _ack_objects(url: str) -> Request:
    body = b'{"messages":[' + b"{}," * (4 * MIB // 3 - 10) + b"{}]}"
    sent = {"content-type": "application/json"}
    return lambda session, number: session.post(f"{url}{_OF_WORK}/acking/acks", data=body, headers=sent)


async def _ack_frames(url: str, seconds: float) -> Seen:
    """Acks of claims that are none, over sockets, as fast as the broker takes them. Their answers are read."""
    document = {"id": 1, "group": "acking", "ack": {"messages": [{"claim": "AAAA"}] * 3000}}
    frame, seen = json.dumps(document, separators=(",", ":")), Counter[str]()
    until = time.perf_counter() + seconds

    async def attack(session: aiohttp.ClientSession) -> None:
        async with session.ws_connect(f"{url}/v1/topics/{_WORK}/socket", protocols=("braidmq.v1",)) as socket:
            reading = asyncio.create_task(_read_all(socket, seen))
            while time.perf_counter() < until and not socket.closed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(socket.send_str(frame), max(0.0, until - time.perf_counter()))
                    seen["frames"] += 1
            reading.cancel()

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(attack(session) for _ in range(4)))
    return seen


async def _read_all(socket: aiohttp.ClientWebSocketResponse, seen: Seen) -> None:
    async for message in socket:
        seen["answers"] += message.data.count('"id":1')


ATTACKS = {
    "claims": Attack("20 clients claim 10,000 messages and never ack", by_clients(20, _claim), _work),
    "claiming-groups": Attack(
        "20 clients claim 10,000 messages, each time for another group", by_clients(20, _claim_with_groups), _work
    ),
    "claim-polls": Attack("1,000 long polls of claims of the topic of the others", by_clients(_MOST_POLLS, _poll)),
    "groups": Attack(
        "10,000 groups created by one client",
        at_once([("PUT", f"{_OF_OTHERS}/made-{number}", {}) for number in range(10_000)]),
    ),
    "member-ids": Attack("20 clients join with names of 900 KB", by_clients(20, _join_by_long_names), _crew),
    "members": Attack("20 clients join, each time under another name", by_clients(20, _join), _crew),
    "ack-objects": Attack("30 clients ack 4 MB of empty objects", by_clients(30, _ack_objects), _work),
    "ack-frames": Attack("4 sockets with acks of 3,000 claims that are none", _ack_frames, _work),
    "ack-ranges": Attack("4 clients ack 100,000 ranges", by_clients(4, _ack(100_000)), _work),
    "allowed-ranges": Attack("4 clients ack the same 10,000 ranges", by_clients(4, _ack(10_000)), _work),
}
