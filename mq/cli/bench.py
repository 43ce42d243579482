"""`mq bench`: publishes to a running broker and reads back, and says how fast that was."""

from contextlib import suppress
from typing import Annotated

import typer

from braidmq import AsyncClient, BraidMQError
from filer.clock import SystemClock
from mq.cli.bench_run import BenchPlan, Measured, measure_publish, measure_read
from mq.cli.connect import with_client
from mq.cli.failures import CommandFailed
from mq.cli.options import DEFAULT_URL, Json, Url
from mq.cli.output import print_json, print_table


def bench(
    messages: Annotated[int, typer.Option("--messages", "-n", min=1, max=100_000_000, help="How many.")] = 100_000,
    size: Annotated[int, typer.Option("--size", min=0, max=1024 * 1024, help="Bytes of each value.")] = 1024,
    batch: Annotated[int, typer.Option("--batch", min=1, max=1_000_000, help="Messages a request.")] = 1000,
    connections: Annotated[int, typer.Option("--connections", "-c", min=1, max=512, help="Publishers.")] = 4,
    segments: Annotated[int, typer.Option("--segments", min=1, max=1024, help="Segments of the topic.")] = 1,
    seconds: Annotated[float, typer.Option("--seconds", min=0.1, max=3600, help="Publish no longer than this.")] = 30,
    topic: Annotated[str | None, typer.Option("--topic", help="A new topic, which stays (one that goes).")] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Measure a broker: messages published and stored, then read back, through this machine's client.

    The figures include the client's own work, which shares the processors with a broker on the same machine.
    """
    clock = SystemClock()
    plan = BenchPlan(topic or f"bench-{clock.ulid()}", messages, size, batch, connections, seconds)

    async def work(client: AsyncClient) -> tuple[Measured, Measured]:
        made = await client.create_topic(plan.topic, segments=segments)
        if any(segment.end_offset for segment in made.segments):
            raise CommandFailed(f"topic {plan.topic!r} holds messages already: name a new one")
        try:
            return await measure_publish(client, clock, plan), await measure_read(client, clock, plan)
        finally:
            if topic is None:
                with suppress(BraidMQError):  # what went wrong before says more
                    await client.delete_topic(plan.topic)

    published, read = with_client(url, work)
    if as_json:
        print_json({"publish": published.summary(), "read": read.summary()})
    else:
        _print(published, read)
    if read.messages != published.messages:
        raise CommandFailed(f"{published.messages:,} messages were stored, {read.messages:,} came back")


def _print(*steps: Measured) -> None:
    columns = ("", "messages", "seconds", "messages/s", "MB/s", "p50 ms", "p99 ms")
    rows = []
    for step in steps:
        told = step.summary()
        latency = (told["p50_ms"], told["p99_ms"])
        rate = (round(told["messages_per_second"]), told["megabytes_per_second"])
        rows.append((step.name, step.messages, step.seconds, *rate, *latency))
    print_table(columns, rows)
