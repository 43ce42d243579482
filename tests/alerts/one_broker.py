"""One broker that asks for tokens, its policy, and a topic `orders`."""

import contextlib
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.broker.broker_process import BrokerProcess

TOKEN = "braidmq_of-tests-alone"
GRANTS = ("topic:*:*", "topic:__audit:read", "cluster:*")
POLICY = "/v1/cluster/policy"


@dataclass(frozen=True, slots=True)
class OneBroker:
    """The process, who asks it, and what commands take to do so."""

    process: BrokerProcess
    client: httpx.AsyncClient
    environment: Mapping[str, str]

    async def set_policy(self, policy: Mapping[str, Any]) -> None:
        """Put another policy in force."""
        etag = (await self.client.get(POLICY)).raise_for_status().headers["etag"]
        (await self.client.put(POLICY, json=policy, headers={"if-match": etag})).raise_for_status()


@contextlib.asynccontextmanager
async def one_broker(
    folder: Path,
    *,
    data: Path | None = None,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    topic: Mapping[str, Any] | None = None,
) -> AsyncIterator[OneBroker]:
    """A broker on a directory, or on the store that the arguments name."""
    tokens, token = folder / "tokens.toml", folder / "token"
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    grants = ", ".join(f'"{each}"' for each in GRANTS)
    tokens.write_text(f'[[token]]\nname = "shop"\nsha256 = "{digest}"\ngrants = [{grants}]\n')
    tokens.chmod(0o600)
    token.write_text(TOKEN)
    asks = ["--authorizer", "tokens", "--static-tokens", str(tokens), *arguments]
    with BrokerProcess(data=data, args=asks, env=environment) as process:
        bearer = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=process.url, headers=bearer, trust_env=False, timeout=60) as client:
            (await client.put("/v1/topics/orders", json=dict(topic or {}))).raise_for_status()
            told = {"BRAIDMQ_URL": process.url, "BRAIDMQ_TOKEN_FILE": str(token), **(environment or {})}
            yield OneBroker(process, client, told)
