"""`mq local`: run a whole cluster on this machine until Ctrl-C."""

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from filer.clock import Clock, SystemClock
from filer.errors import BraidError, InvalidInput
from mq.base.version import VERSION
from mq.cli.failures import CommandFailed, say
from mq.cli.options import duration_seconds
from mq.cli.output import print_json, print_lines, print_table, readers_or_none
from mq.cli.server.local_secure import LocalContext, secure_hints
from mq.local.child import ChildProcess, ProcessFailed, how_it_ended
from mq.local.cluster import CLUSTER, S3_ENVIRONMENT, LocalCluster, LocalSettings, folder_of_its_own
from mq.local.secure.secure_folder import SecureFolder
from mq.process.stop_signals import StopSignals

_POLL_SECONDS = 0.2
_RENEWAL_SECONDS = 3600.0
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
    secure: Annotated[
        bool,
        typer.Option(
            "--secure",
            help="Let nobody in without a token, and send nothing in the clear. Certificates, keys and tokens are made "
            "once, in the folder secure below --data, and renewed before they end.",
        ),
    ] = False,
    context_name: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="NAME",
            help="With --secure: the context that commands go by while it runs.",
            show_default="local",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one line of JSON once everything is ready.")] = False,
) -> None:
    """Run a whole cluster on this machine: ZooKeeper, a store and brokers. Ctrl-C ends it.

    BRAIDMQ_* variables reach the brokers, unless an option of this command sets the same thing.
    """
    if context_name is not None and not secure:
        raise InvalidInput("--context names the context of --secure, which is not given")
    if secure and store == "s3":
        raise InvalidInput("--secure needs --store directory: the S3 server in memory asks nobody who they are")
    settings = LocalSettings(
        data,
        brokers,
        3 if zookeepers == "3" else 1,
        store,
        first_port=port,
        session_timeout_seconds=session_timeout,
        secure=secure,
    )
    clock = SystemClock()
    cluster = LocalCluster(settings, clock, say)
    context = None if cluster.secure is None else LocalContext(context_name or "local", cluster.secure)
    # For all files that this process and its children write: messages, logs, keys.
    os.umask(0o077)
    if context is not None:
        context.check()
        cluster.refuse_what_others_placed()
    with folder_of_its_own(data):
        asyncio.run(_run(cluster, clock, context, as_json=as_json))


async def _run(cluster: LocalCluster, clock: Clock, context: LocalContext | None, *, as_json: bool) -> None:
    stop = StopSignals()
    try:
        if await _started(cluster, stop):
            told = _use(context, cluster)
            with readers_or_none():
                _print_ready(cluster, told, as_json=as_json)
            await _watch(cluster, clock, stop)
        failed = await cluster.stop()
    finally:
        cluster.kill()
        _leave(context)
    for process in failed:
        _print_end(process)
    if failed:
        raise CommandFailed(f"{', '.join(each.name for each in failed)} did not stop cleanly")


async def _watch(cluster: LocalCluster, clock: Clock, stop: StopSignals) -> None:
    """Report processes that end, and renew files that are about to expire, until it is asked to stop."""
    renewal = clock.monotonic_seconds() + _RENEWAL_SECONDS
    while not stop.asked.is_set():
        for process in cluster.newly_ended():
            _print_end(process)
        if cluster.secure is not None and clock.monotonic_seconds() >= renewal:
            renewal = clock.monotonic_seconds() + _RENEWAL_SECONDS
            _renew(cluster.secure)
        await clock.sleep(_POLL_SECONDS)


def _renew(secure: SecureFolder) -> None:
    """Renew files. Brokers, ZooKeeper and clients read them again then. The earlier ones stay good for weeks."""
    try:
        made = secure.renew()
    except (BraidError, OSError) as error:
        say(f"what is about to expire cannot be renewed, and will be tried again in an hour: {error}")
        return
    if made:
        say(f"renewed: {', '.join(made)}")


def _use(context: LocalContext | None, cluster: LocalCluster) -> str | None:
    """Let commands find the brokers by their context. Returns a line to print about it; None if there is none."""
    if context is None:
        return None
    try:
        return context.use([broker.url for broker in cluster.brokers])
    except (BraidError, OSError) as error:
        # The cluster runs, and there are other ways to it.
        say(f"the context {context.name} cannot be set: {error}")
        return None


def _leave(context: LocalContext | None) -> None:
    if context is None:
        return
    try:
        context.leave()
    except (BraidError, OSError) as error:
        say(f"the context {context.name} is still in use, though its brokers have stopped: {error}")


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


def _print_ready(cluster: LocalCluster, context_line: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json(_facts(cluster))
        return
    print_lines(f"BraidMQ {VERSION}: {len(cluster.brokers)} brokers, storing in {cluster.store}", "")
    print_table(("process", "address", "pid", "log"), _rows(cluster))
    print_lines(*_hints(cluster, context_line))


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
        "secure": None if cluster.secure is None else _files(cluster.secure),
    }


def _files(secure: SecureFolder) -> dict[str, str]:
    return {
        "ca": str(secure.ca),
        "token_file": str(secure.token),
        "header_file": str(secure.header),
        "signing_keys": str(secure.signing_keys),
    }


def _hints(cluster: LocalCluster, context_line: str | None = None) -> list[str]:
    first, last = cluster.brokers[0], cluster.brokers[-1]
    other = cluster.brokers[len(cluster.brokers) // 2]
    another = shlex.join(cluster.broker_command(f"broker-{len(cluster.brokers) + 1}", 0))
    keys = "".join(f"{name}={value} " for name, value in S3_ENVIRONMENT.items()) if cluster.s3 is not None else ""
    urls = [broker.url for broker in cluster.brokers]
    # A context is for all of its brokers: with an address beside it, all its other values would be needed as well.
    to_first, to_other, to_last = ("" if cluster.secure else f" --url {each.url}" for each in (first, other, last))
    programs = [] if cluster.secure is None else secure_hints(cluster.secure, CLUSTER, urls, _TOPIC)
    return [
        "",
        *([] if context_line is None else [context_line]),
        "Create a topic:",
        f"  mq topic create {_TOPIC} --segments {2 * len(cluster.brokers)}{to_first}",
        "Publish through any broker:",
        f"  mq publish {_TOPIC} 'an apple falls' --key tree{to_other}",
        "Read through any other broker:",
        f"  mq subscribe {_TOPIC} --from earliest{to_last}",
        "Show the leader, and how many segments each broker owns:",
        f"  mq cluster status{to_first}",
        "Make a broker hand over its segments:",
        f"  mq cluster drain {last.name}{to_first}",
        "Let it own segments again:",
        f"  mq cluster undrain {last.name}{to_first}",
        "Kill a broker, and watch the others take over:",
        f"  kill -9 {last.pid}",
        "Add a broker:",
        f"  {keys}mq {another}",
        *programs,
        "",
        "Ctrl-C stops everything.",
    ]
