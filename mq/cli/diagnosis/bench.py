"""`mq bench`: publish to a running broker, read everything back, and print the speed."""

from contextlib import suppress
from typing import Annotated

import typer

from braidmq import AsyncClient, BraidMQError
from filer.clock import SystemClock
from mq.cli.connect import with_client
from mq.cli.diagnosis.bench_run import BenchPlan, Measurement, measure_publish, measure_read
from mq.cli.failures import CommandFailed
from mq.cli.options import DEFAULT_URL, Json, Timeout, Url, duration_seconds, size_bytes
from mq.cli.output import print_json, print_table


def bench(
    messages: Annotated[
        int, typer.Option("--messages", "-n", min=1, max=100_000_000, help="How many messages to publish.")
    ] = 100_000,
    size: Annotated[
        int,
        typer.Option(
            "--size",
            parser=size_bytes(0, 1024 * 1024),
            metavar="SIZE",
            show_default=False,
            help="Size of each value (default: 1KiB).",
        ),
    ] = 1024,
    batch: Annotated[int, typer.Option("--batch", min=1, max=1_000_000, help="Messages per request.")] = 1000,
    connections: Annotated[
        int, typer.Option("--connections", "-c", min=1, max=512, help="Publishers at the same time.")
    ] = 4,
    segments: Annotated[int, typer.Option("--segments", min=1, max=1024, help="Segments of the topic.")] = 1,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            parser=duration_seconds(0.1, 3600),
            metavar="DURATION",
            show_default=False,
            help="Stop publishing after this time (default: 30s).",
        ),
    ] = 30,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="Name of a new topic to keep (default: a temporary topic)."),
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Measure a broker: publish messages until they are stored, then read them back.

    The figures include the work of the client. On one machine it shares the processors with the broker.
    """
    clock = SystemClock()
    plan = BenchPlan(topic or f"bench-{clock.ulid()}", messages, size, batch, connections, seconds)

    async def work(client: AsyncClient) -> tuple[Measurement, Measurement]:
        created = await client.create_topic(plan.topic, segments=segments)
        if any(segment.end_offset for segment in created.segments):
            raise CommandFailed(f"topic {plan.topic!r} already holds messages: name a new topic")
        try:
            return await measure_publish(client, clock, plan), await measure_read(client, clock, plan)
        finally:
            if topic is None:
                with suppress(BraidMQError):  # the first error says more
                    await client.delete_topic(plan.topic)

    published, read = with_client(url, timeout, work)
    if as_json:
        print_json({"publish": published.summary(), "read": read.summary()})
    else:
        _print(published, read)
    if read.messages != published.messages:
        raise CommandFailed(f"{published.messages:,} messages were stored, {read.messages:,} came back")


def _print(*steps: Measurement) -> None:
    columns = ("", "messages", "seconds", "messages/s", "MB/s", "p50 ms", "p99 ms")
    rows = []
    for step in steps:
        figures = step.summary()
        latency = (figures["p50_ms"], figures["p99_ms"])
        rate = (round(figures["messages_per_second"]), figures["megabytes_per_second"])
        rows.append((step.name, step.messages, step.seconds, *rate, *latency))
    print_table(columns, rows)
