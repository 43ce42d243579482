"""Asks a cluster whose brokers come and go."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import httpx

ASK_SECONDS = 20.0
NOT_NOW_SECONDS = 0.1


class Asking:
    """Requests to any of the brokers, whose `urls` may change."""

    def __init__(
        self, urls: Callable[[], Sequence[str]], chance: random.Random, *, timeout_seconds: float = ASK_SECONDS
    ) -> None:
        self._urls, self._chance = urls, chance
        self._client = httpx.AsyncClient(
            timeout=timeout_seconds, trust_env=False, limits=httpx.Limits(max_connections=100)
        )

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._client.aclose()

    async def until_answered(self, method: str, path: str, **request: Any) -> httpx.Response:
        """Ask any broker until one answers, for a request that may be repeated."""
        while True:
            answer = await self.once(method, path, **request)
            if answer is not None:
                return answer

    async def once(self, method: str, path: str, **request: Any) -> httpx.Response | None:
        """Ask one broker once. None, a little later, if it does not answer, or says that it cannot now."""
        url = self._chance.choice(list(self._urls()))
        try:
            answer = await self._client.request(method, url + path, **request)
        except httpx.TransportError:
            answer = None
        if answer is not None and answer.status_code < 500 and answer.status_code != 429:
            return answer
        await asyncio.sleep(NOT_NOW_SECONDS)
        return None
