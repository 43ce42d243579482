"""`mq local`: run a whole cluster on this machine until Ctrl-C."""

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from filer.clock import Clock, SystemClock
from mq.base.version import VERSION
from mq.cli.failures import CommandFailed
from mq.cli.options import duration_seconds
from mq.cli.output import print_json, print_lines, print_table, readers_or_none
from mq.local.child import ChildProcess, ProcessFailed, how_it_ended
from mq.local.cluster import S3_ENVIRONMENT, LocalCluster, LocalSettings, folder_of_its_own
from mq.process.stop_signals import StopSignals

_POLL_SECONDS = 0.2
_TOPIC = "demo"


def local(
    brokers: Annotated[int, typer.Option("--brokers", min=1, max=50, help="How many brokers to run.")] = 3,
    zookeepers: Annotated[
        Literal["1", "3"], typer.Option("--zookeepers", help="One ZooKeeper, or an ensemble of three.")
    ] = "1",
    store: Annotated[
        Literal["directory", "s3"],
        typer.Option("--store", help="Store for the messages: a directory below --data, or an S3 server in memory."),
    ] = "directory",
    data: Annotated[Path, typer.Option("--data", file_okay=False, help="Directory for messages and logs.")] = Path(
        "braid-local"
    ),
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_000, help="Port of the first broker; 0 takes free ports.")
    ] = 8080,
    session_timeout: Annotated[
        float,
        typer.Option(
            "--session-timeout",
            parser=duration_seconds(1, 120),
            metavar="DURATION",
            show_default=False,
            help="Time after which the cluster gives up a silent broker (default: 10s).",
        ),
    ] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON once everything is ready.")] = False,
) -> None:
    """Run a whole cluster on this machine: ZooKeeper, a store and brokers. Ctrl-C ends it.

    BRAIDMQ_* variables reach the brokers, unless an option of this command sets the same thing.
    """
    settings = LocalSettings(
        data, brokers, 3 if zookeepers == "3" else 1, store, first_port=port, session_timeout_seconds=session_timeout
    )
    clock = SystemClock()
    cluster = LocalCluster(settings, clock)
    with folder_of_its_own(data):
        asyncio.run(_run(cluster, clock, as_json=as_json))


async def _run(cluster: LocalCluster, clock: Clock, *, as_json: bool) -> None:
    stop = StopSignals()
    try:
        if await _started(cluster, stop):
            with readers_or_none():
                _print_ready(cluster, as_json=as_json)
            while not stop.asked.is_set():
                for process in cluster.newly_ended():
                    _print_end(process)
                await clock.sleep(_POLL_SECONDS)
        failed = await cluster.stop()
    finally:
        cluster.kill()
    for process in failed:
        _print_end(process)
    if failed:
        raise CommandFailed(f"{', '.join(each.name for each in failed)} did not stop cleanly")


async def _started(cluster: LocalCluster, stop: StopSignals) -> bool:
    """Whether the cluster started before it was asked to stop.

    If a process fails, print the end of its log and raise what `start` raises.
    """
    starting, asked = asyncio.create_task(cluster.start()), asyncio.create_task(stop.asked.wait())
    await asyncio.wait([starting, asked], return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return False
    try:
        starting.result()
    except ProcessFailed:
        for process in cluster.newly_ended():
            _print_end(process)
        raise
    return True


def _print_end(process: ChildProcess) -> None:
    if process.returncode is None:
        return
    sys.stderr.write(
        f"{process.name} (pid {process.pid}) ended with {how_it_ended(process.returncode)}; {process.log} ends:\n"
    )
    sys.stderr.write("".join(f"  {line}\n" for line in process.log_end().splitlines()))
    sys.stderr.flush()


def _print_ready(cluster: LocalCluster, *, as_json: bool) -> None:
    if as_json:
        print_json(_facts(cluster))
        return
    print_lines(f"BraidMQ {VERSION}: {len(cluster.brokers)} brokers, storing in {cluster.store}", "")
    print_table(("process", "address", "pid", "log"), _rows(cluster))
    print_lines(*_hints(cluster))


def _rows(cluster: LocalCluster) -> list[tuple[object, ...]]:
    addresses = [node.address for node in cluster.zookeepers]
    addresses += [cluster.s3_endpoint] if cluster.s3 is not None else []
    addresses += [broker.url for broker in cluster.brokers]
    return [
        (process.name, address, str(process.pid), process.log)
        for process, address in zip(cluster.processes, addresses, strict=True)
    ]


def _facts(cluster: LocalCluster) -> dict[str, object]:
    def fact(process: ChildProcess, **more: object) -> dict[str, object]:
        return {**more, "pid": process.pid, "log": str(process.log)}

    return {
        "store": cluster.store,
        "zookeeper": cluster.hosts,
        "s3": None if cluster.s3 is None else fact(cluster.s3, url=cluster.s3_endpoint),
        "zookeepers": [fact(node.process, address=node.address) for node in cluster.zookeepers],
        "brokers": [fact(broker, broker=broker.name, url=broker.url) for broker in cluster.brokers],
        "serve": cluster.broker_command(f"broker-{len(cluster.brokers) + 1}", 0),
        "environment": S3_ENVIRONMENT if cluster.s3 is not None else {},
    }


def _hints(cluster: LocalCluster) -> list[str]:
    first, last = cluster.brokers[0], cluster.brokers[-1]
    other = cluster.brokers[len(cluster.brokers) // 2]
    another = shlex.join(cluster.broker_command(f"broker-{len(cluster.brokers) + 1}", 0))
    keys = "".join(f"{name}={value} " for name, value in S3_ENVIRONMENT.items()) if cluster.s3 is not None else ""
    return [
        "",
        "Create a topic:",
        f"  mq topic create {_TOPIC} --segments {2 * len(cluster.brokers)} --url {first.url}",
        "Publish through any broker:",
        f"  mq publish {_TOPIC} 'an apple falls' --key tree --url {other.url}",
        "Read through any other broker:",
        f"  mq subscribe {_TOPIC} --from earliest --url {last.url}",
        "Show the leader, and how many segments each broker owns:",
        f"  mq cluster status --url {first.url}",
        "Make a broker hand over its segments:",
        f"  mq cluster drain {last.name} --url {first.url}",
        "Let it own segments again:",
        f"  mq cluster undrain {last.name} --url {first.url}",
        "Kill a broker, and watch the others take over:",
        f"  kill -9 {last.pid}",
        "Add a broker:",
        f"  {keys}mq {another}",
        "",
        "Ctrl-C stops everything.",
    ]
