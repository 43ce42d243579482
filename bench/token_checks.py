"""What it costs to know who asks: by a token with each request, by the kernel once for each connection.

    python -m bench.token_checks

Processor time in one process, without a socket: the best of many short runs, so other work on the machine hardly
matters. The first table is what the fast path of publishes asks for each message; a publish of one message takes some
hundred microseconds in all (bench/README.md). The second is a whole answer of the ASGI app, of a thousand that are
asked for at once, with its record in the audit trail: a flood of bad tokens should cost a broker no more than a flood
of requests for topics that do not exist. The third is what a connection costs more with `--authorizer user`, beside
making and closing one without a broker.
"""

import argparse
import asyncio
import json
import socket
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message

from filer.clock import Clock, SystemClock
from filer.stores.memory_store import MemoryStore
from leader.membership.coordinator import InProcessCoordinator
from mq.base.errors import Unauthenticated
from mq.base.read_settings import read_settings
from mq.broker import Broker
from mq.http.app import create_asgi
from mq.http.guard import Guard
from mq.limits.quotas import Quotas
from mq.machine_users.kernel_users import open_kernel_users
from mq.machine_users.proc_net import ProcNet
from mq.machine_users.socket_diag import SocketDiag
from mq.security.caller import Caller
from mq.security.grants import parse_grants
from mq.security.policy.document import Policy, parse_policy
from mq.security.signing_keys import SigningKeys

RUNS, CALLS = 40, 2000
FLOODS, REQUESTS = 6, 1000
_PATH = "/v1/topics/bench/messages"


def best_us(call: Callable[[], object], calls: int = CALLS) -> float:
    """Processor time of a call, in the best run."""
    best_seconds = float("inf")
    for _ in range(RUNS):
        began_seconds = time.process_time()
        for _ in range(calls):
            call()
        best_seconds = min(best_seconds, time.process_time() - began_seconds)
    return best_seconds / calls * 1e6


async def answer_us(app: ASGIApp, authorization: bytes) -> tuple[int, float]:
    """The status of a GET, and its processor time in the best run."""
    headers = [(b"host", b"localhost"), (b"authorization", authorization)]
    statuses: list[int] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def ask() -> None:
        scope: dict[str, Any] = {
            "type": "http", "method": "GET", "path": _PATH, "raw_path": _PATH.encode(), "query_string": b"",
            "headers": headers, "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 80), "scheme": "http",
        }  # fmt: skip
        await app(scope, receive, send)

    best_seconds = float("inf")
    for _ in range(FLOODS):
        began_seconds = time.process_time()
        await asyncio.gather(*(ask() for _ in range(REQUESTS)))
        best_seconds = min(best_seconds, time.process_time() - began_seconds)
    return statuses[-1], best_seconds / REQUESTS * 1e6


async def measure(folder: Path, clock: Clock) -> None:
    """Print both tables."""
    keys, others = (SigningKeys(()).rotated(clock, 0) for _ in range(2))
    grants = parse_grants(["topic:*:*"])

    def token(signing: SigningKeys, **changed: Any) -> bytes:
        made, _ = signing.sign(
            "bench", grants, **{"audience": "braidmq", "ttl_seconds": 3600, "clock": clock, **changed}
        )
        return b"Bearer " + made.encode()

    (folder / "keys.json").write_text(json.dumps(keys.public()))
    asking = read_settings({"authorizer": "tokens", "token_keys": str(folder / "keys.json")}, {}, {})
    broker = Broker(MemoryStore(), clock, InProcessCoordinator(), asking)
    await broker.start("http://127.0.0.1:80")
    credentials, good = broker.access.credentials, token(keys)
    assert credentials is not None
    anybody, asked = Guard(read_settings({"authorizer": "any"}, {}, {}), None), Guard(asking, credentials)
    here = Caller("127.0.0.1")
    without_us = best_us(lambda: anybody.publisher(here, "bench", None))
    with_us = best_us(lambda: asked.publisher(here, "bench", good))
    print("| to let a publish through | us |\n| --- | ---: |")
    print(f"| without tokens | {without_us:.2f} |\n| with a token that was seen before | {with_us:.2f} |\n")
    _measure_quotas(asked, here, good)
    forged = others.sign("bench", grants, audience="braidmq", ttl_seconds=3600, clock=clock)[0]
    known_id = SigningKeys(({**others.keys[0], "kid": keys.keys[0]["kid"]},))
    cases = {
        "a good token, a topic that is not there": good,
        "no JSON Web Token": b"Bearer x.y.z",
        "a key that is not known": b"Bearer " + forged.encode(),
        "another cluster's": token(keys, audience="other"),
        "forged: the signature is wrong": token(known_id),
    }
    app = create_asgi(broker)
    print("| answer | status | us |\n| --- | ---: | ---: |")
    for name, authorization in cases.items():
        status, us = await answer_us(app, authorization)
        print(f"| {name} | {status} | {us:.0f} |")
    await broker.close()
    _verify_once(credentials.principal, token(known_id))


def _same(policy: Policy) -> Policy:
    return policy


def _measure_quotas(asked: Guard, caller: Caller, good: bytes) -> None:
    """Print what a quota costs a publish besides, as the fast path asks for it."""
    whose = asked.publisher(caller, "bench", good)
    assert whose is not None
    print("| to ask for a quota | us |\n| --- | ---: |")
    for name, principal in (("there are none", None), ("others have one", "else"), ("it has one", "bench")):
        limits = {"principal": principal, "requests_per_second": 2**50, "publish_bytes_per_second": 2**50}
        policy = parse_policy({} if principal is None else {"quotas": [limits]})
        quotas = Quotas(partial(_same, policy), time.monotonic)

        def within(quotas: Quotas = quotas) -> None:
            if quotas.limits_somebody:
                share = quotas.share(whose.name)
                if share is not None and (
                    not share.may_sit(caller.seat) or share.begin_publish(64, "bench") is not None
                ):
                    raise SystemExit("bench: the quota is used up")

        print(f"| {name} | {best_us(within):.2f} |")
    print()


def measure_connections() -> None:
    """Print the third table."""
    rows = {}
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()

        def connect() -> None:
            with socket.create_connection(door.getsockname()), door.accept()[0]:
                pass

        rows["to make and close a connection, both ends"] = best_us(connect, calls=100)
        with socket.create_connection(door.getsockname()), door.accept()[0] as ours:
            ends = ours.getpeername(), ours.getsockname()
            for way, calls in ((SocketDiag, 100), (ProcNet, 2)):
                users = open_kernel_users([way])
                rows[f"to ask whose it is ({way.__name__})"] = best_us(partial(users.user, *ends), calls)
                users.close()
    print("\n| once for each connection | us |\n| --- | ---: |")
    for name, us in rows.items():
        print(f"| {name} | {us:.1f} |")


def _verify_once(principal: Callable[[bytes], object], forged: bytes) -> None:
    """A bench that lets a forged token in measures nothing."""
    try:
        principal(forged)
    except Unauthenticated:
        return
    raise SystemExit("bench: a forged token was accepted")


def main() -> None:
    """Measure."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), SystemClock()))
    measure_connections()


if __name__ == "__main__":
    main()
