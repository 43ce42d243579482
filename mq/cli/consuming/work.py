"""`mq work`: run a command for each message of a queue group."""

import asyncio
import shutil
from typing import Annotated

import typer

from braidmq import AsyncClient, AsyncDelivery
from braidmq.consume.signals import stopped_by_signals
from mq.cli.connect import with_client
from mq.cli.consuming.message_command import EndGuard, run_command
from mq.cli.failures import CommandFailed, say
from mq.cli.options import DEFAULT_URL, GroupOption, Idle, Timeout, TopicName, Url


def work(
    topic: TopicName,
    group: GroupOption,
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND…", help="The command and its arguments, behind --.", show_default=False),
    ],
    concurrency: Annotated[
        int, typer.Option("--concurrency", "-c", min=1, max=1000, help="How many messages to work on at a time.")
    ] = 1,
    idle_seconds: Idle = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
) -> None:
    """Run a command for each message of a topic. It is done if the command exits with 0; else it comes again.

    The value is on the command's stdin. MQ_KEY, MQ_ID, MQ_DELIVERIES, MQ_TIMESTAMP, MQ_TOPIC, MQ_GROUP, MQ_HEADERS (as
    JSON) and MQ_HEADER_… (one each) are in its environment. Ctrl-C or SIGTERM lets commands that run end, and stops.
    """
    if shutil.which(command[0]) is None:
        raise CommandFailed(f"there is no command {command[0]!r} to run for each message")

    async def run(client: AsyncClient) -> None:
        worker = client.worker(topic, group=group, idle_seconds=idle_seconds)
        guard = EndGuard()
        running = 0

        async def handle(delivery: AsyncDelivery) -> None:
            nonlocal running
            running += 1
            try:
                reason = await run_command(command, client, delivery, group, guard)
            finally:
                running -= 1
            if reason is not None:
                delivery.release(reason=reason)
                say(f"message {delivery.id} has failed, delivery {delivery.deliveries}: {reason}")

        def stop() -> None:
            worker.stop()
            if running:
                say(f"stopping: {running} of {concurrency} commands run; Ctrl-C again ends them")

        loop = asyncio.get_running_loop()
        with guard, stopped_by_signals(lambda: loop.call_soon_threadsafe(stop)):
            await worker.run(handle, concurrency=concurrency, signals=False)
        if worker.lost:
            say(f"{worker.lost} messages were done too late: they are with another worker of group {group}, too")

    with_client(url, timeout, run, is_patient=True)
