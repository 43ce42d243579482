"""A cluster of real processes in which nobody gets in who may not, and whose secrets change while it runs.

Clients come over TLS with tokens of an OpenID issuer. Brokers call each other at a port of their own, by mutual TLS
with a CA of their own, and sign what they say. The nodes in ZooKeeper are theirs.
"""

import asyncio
import os
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest import mock

import httpx
import orjson

from tests.support.broker.broker_process import BrokerProcess
from tests.support.cluster.access import Access, NewestToken
from tests.support.cluster.steered_cluster import SteeredCluster
from tests.support.issuer import Issuer, issuer_running
from tests.support.net.authority import Authority
from tests.support.store.shared_store import SharedStore

AUDIENCE = "queue"
# Clocks are stepped: a token is not to end, nor to begin, by that.
LONG_SECONDS = 10 * 86400
LOOK_SECONDS = 0.1
# More than two looks of a broker at its files.
AGAIN_SECONDS = 4.0
# A broker asks its issuer at most once in ten seconds, and another one may be down for some sessions.
PATIENCE_SECONDS = 90.0


class SecureCluster(SteeredCluster):
    """A `SteeredCluster` behind locks. `rotations` counts what has been changed for all brokers, by kind."""

    def __init__(self, folder: Path, store: SharedStore, **settings: Any) -> None:
        super().__init__(folder, store, **settings)
        self._public, self._private = (_authority(folder / name) for name in ("public", "private"))
        self._token, self._peer_keys, self._credentials = (
            folder / name for name in ("token", "keys", "zookeeper-auth")
        )
        self._issuer = _IssuerThread()
        self._folder, self._variables = folder, mock.patch.dict(os.environ)
        self.rotations: dict[str, int] = {"certificates": 0, "keys of brokers": 0, "keys of the issuer": 0}

    def __enter__(self) -> Self:
        self._peer_keys.write_text(_new_key())
        self._credentials.write_text(f"braidmq:{secrets.token_hex(16)}")
        self._stack.enter_context(self._issuer)
        self._token.write_text(self._new_token())
        self.access = Access(self._public.client(), NewestToken(self._token))
        # What begins in this process, or from it, and is not given an access.
        self._stack.enter_context(self._variables)
        os.environ |= {"BRAIDMQ_CA": str(self._public.ca), "BRAIDMQ_TOKEN_FILE": str(self._token)}
        return super().__enter__()

    def _process(self, name: str, arguments: Sequence[str]) -> BrokerProcess:
        self._sign(name)
        folder = self._folder
        own = [
            *("--tls-cert", folder / f"{name}.pem", "--tls-key", folder / f"{name}.key", "--tls-ca", self._public.ca),
            *("--peer-port", "0", "--peer-keys", self._peer_keys, "--peer-tls-ca", self._private.ca),
            *("--peer-tls-cert", folder / f"{name}-peer.pem", "--peer-tls-key", folder / f"{name}-peer.key"),
            *("--authorizer", "tokens", "--oidc-issuer", self._issuer.issuer.url, "--oidc-audience", AUDIENCE),
            *("--zookeeper-auth", self._credentials),
        ]
        process = super()._process(name, [*arguments, *map(str, own)])
        process.tls = self._public.client()
        return process

    def stranger(self) -> BrokerProcess:
        """A broker with all that those of the cluster have, but a certificate for brokers of another CA."""
        other = _authority(self._folder / "other")
        cert, key = other.sign("stranger")
        process = self._process("stranger", self.brokers["b0"].process.arguments[3:])
        changed = {"--peer-tls-cert": cert, "--peer-tls-key": key, "--peer-tls-ca": other.ca}
        process.arguments += [str(each) for pair in changed.items() for each in pair]
        return process

    async def rotate_again_and_again(self) -> None:
        """As `rotate`, until cancelled."""
        while True:
            await self.rotate()

    async def rotate(self) -> None:
        """Change all certificates, the keys of brokers and those of the issuer, once each, and have all use the new."""
        async with asyncio.TaskGroup() as tasks:
            for change in (self.rotate_certificates, self.rotate_keys_of_brokers, self.rotate_keys_of_the_issuer):
                tasks.create_task(change())

    async def rotate_certificates(self) -> None:
        """New certificates for both ports of each broker."""
        await self._all_read("tls_reloaded", 2, lambda: [self._sign(name) for name in self.brokers])
        self.rotations["certificates"] += 1

    async def rotate_keys_of_brokers(self) -> None:
        """A new key: it verifies, it signs, and the one before goes. Each step when all brokers have taken the last."""
        old, new = self._peer_keys.read_text(), _new_key()
        for text in (f"{old}\n{new}", f"{new}\n{old}", new):
            await self._all_read("peer_keys_read", 1, partial(_put, self._peer_keys, text.encode()))
        self.rotations["keys of brokers"] += 1

    async def rotate_keys_of_the_issuer(self) -> None:
        """The issuer signs with a new key, and tells the old one too. Clients get its tokens once all brokers know."""
        before = orjson.loads(self._issuer.issuer.maker.key_set)["keys"]
        self._issuer.issuer.rotate()
        told = orjson.dumps({"keys": [*orjson.loads(self._issuer.issuer.maker.key_set)["keys"], *before]})
        self._issuer.tell(told)
        token = self._new_token()
        async with httpx.AsyncClient(verify=self._public.client(), trust_env=False, timeout=5) as client:
            await self._each(lambda name: self._takes(client, name, token))
        _put(self._token, token.encode())
        self.rotations["keys of the issuer"] += 1

    async def _takes(self, client: httpx.AsyncClient, name: str, token: str) -> bool:
        headers = {"authorization": f"Bearer {token}"}
        try:
            answer = await client.get(f"{self.brokers[name].process.url}/v1/topics", headers=headers)
        except httpx.TransportError:
            return False
        return answer.status_code == 200

    async def _all_read(self, event: str, times: int, put: Callable[[], object]) -> None:
        """Until each broker has read what is put in place, and told so, or another process has come in its place.

        What a process finds at its start it does not tell: so the same is put there again, until it does.
        """
        before = {name: (_pid(each.process), each.process.log.count(event)) for name, each in self.brokers.items()}

        async def has(name: str) -> bool:
            process = self.brokers[name].process
            pid, count = before.get(name, (0, 0))
            return bool(process.url) and (_pid(process) != pid or process.log.count(event) >= count + times)

        await self._each(has, put)

    async def _each(
        self, does: Callable[[str], Coroutine[Any, Any, bool]], put: Callable[[], object] = lambda: None
    ) -> None:
        """Until it is so for each broker. One that is gone for good is not waited for, one that is down is."""
        done: set[str] = set()
        put_seconds = -AGAIN_SECONDS
        async with asyncio.timeout(PATIENCE_SECONDS):
            while left := self.brokers.keys() - done:
                if time.monotonic() - put_seconds > AGAIN_SECONDS:
                    put()
                    put_seconds = time.monotonic()
                for name in left:
                    if name in self.brokers and self.brokers[name].serves and await does(name):
                        done.add(name)
                await asyncio.sleep(LOOK_SECONDS)

    def _sign(self, name: str) -> None:
        """Certificates for both ports: key and certificate are two files, between which nothing fits for a moment."""
        for authority, kind in ((self._public, ""), (self._private, "-peer")):
            cert, key = authority.sign(name)
            _put(self._folder / f"{name}{kind}.pem", cert.read_bytes())
            _put(self._folder / f"{name}{kind}.key", key.read_bytes())

    def _new_token(self) -> str:
        maker = self._issuer.issuer.maker
        times = {"iat": maker.now_seconds - LONG_SECONDS, "exp": maker.now_seconds + LONG_SECONDS}
        return maker.token("topic:*:*", "cluster:*", **times)


class _IssuerThread:
    """An issuer on an event loop of its own: brokers ask it while nobody runs the test's."""

    issuer: Issuer

    def __enter__(self) -> Self:
        self._runs, self._over = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="issuer")
        self._thread.start()
        self._runs.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def tell(self, keys: bytes) -> None:
        """Have it tell these keys."""
        own = type(self.issuer)._answer
        self.issuer.answer = lambda path: keys if path == "/keys" else own(self.issuer, path)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        async with issuer_running() as self.issuer:
            self._runs.set()
            await self._over.wait()


def _authority(folder: Path) -> Authority:
    folder.mkdir(parents=True)
    return Authority(folder, folder.name)


def _new_key() -> str:
    return f"k{secrets.token_hex(4)} {secrets.token_hex(32)}"


def _pid(process: BrokerProcess) -> int:
    return process.process.pid


def _put(file: Path, data: bytes) -> None:
    """In one step: nobody reads a half of it."""
    beside = file.with_name(f".{file.name}")
    beside.write_bytes(data)
    beside.replace(file)
