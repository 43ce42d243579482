"""What a line of the access log costs a request: processor time, alone, without a broker.

    python -m bench.access_log 2> /dev/shm/lines

An app that answers at once is called with the access log and without, and the lines go to stderr: lead them to a file.
The figures are the best of many short runs, so that other work on the machine hardly matters. What it does to the
throughput of a broker tells `bench/versions.py . --only single-64 --with=--access-log=on --with=--log-level=info`.
"""

import argparse
import asyncio
import time
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from filer import request_ids
from filer.clock import SystemClock
from mq.http.middleware.access_log import AccessLog
from mq.process.log_output import write_log

RUNS, REQUESTS = 40, 500
SCOPE: dict[str, Any] = {
    "type": "http",
    "method": "POST",
    "path": "/v1/topics/bench/messages",
    "headers": [],
    "client": ("127.0.0.1", 5),
}


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request of one part with one part."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"x" * 50})


async def receive() -> Message:
    """A body."""
    return {"type": "http.request", "body": b"x" * 100, "more_body": False}


async def send(message: Message) -> None:
    """Nobody reads it."""


async def microseconds(app: ASGIApp) -> float:
    """Processor time of a request, in the best run."""
    best_seconds = float("inf")
    for _ in range(RUNS):
        began_seconds = time.process_time()
        for _ in range(REQUESTS):
            await app(SCOPE, receive, send)
        best_seconds = min(best_seconds, time.process_time() - began_seconds)
    return best_seconds / REQUESTS * 1e6


async def measure(form: str) -> None:
    """Print both times and the difference."""
    request_ids.begin("0123456789abcdef-123")
    logged = AccessLog(answer, ("v1", "topics", "messages"), SystemClock().monotonic_seconds)
    without, with_log = await microseconds(answer), await microseconds(logged)
    print(
        f"{form}: {with_log:.1f} us with the access log, {without:.1f} us without: {with_log - without:.1f} us a line"
    )


def main() -> None:
    """Measure one form: a process has one log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=("text", "json"), default="text", help="the form of the lines (text)")
    options = parser.parse_args()
    write_log("info", options.format, SystemClock())
    asyncio.run(measure(options.format))


if __name__ == "__main__":
    main()
