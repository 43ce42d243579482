"""`mq cluster`: who is there, who owns how much; have a broker hand over what it owns."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich import progress as bars
from rich.console import Console

from braidmq import AsyncClient, NotFound
from braidmq.models import Broker, BrokerDrain, Cluster
from filer.clock import Clock, SystemClock
from filer.errors import InvalidInput
from filer.nearest import unknown_name
from mq.cli.connect import with_client
from mq.cli.failures import CommandFailed
from mq.cli.options import DEFAULT_URL, Json, Url
from mq.cli.output import print_json, print_lines, print_table

app = typer.Typer(help="Show the cluster, and drain its brokers.", no_args_is_help=True)

_ASK_SECONDS = 0.5
_BROKER_COLUMNS = ("broker", "url", "zone", "version", "state", "segments", "leads")
_TRANSITION_COLUMNS = ("topic", "reason", "seal", "open")


@app.command("status")
def status(url: Url = DEFAULT_URL, as_json: Json = False) -> None:
    """Show the brokers, what each owns, which one leads, and transitions under way."""
    found = with_client(url, lambda client: client.cluster())
    if as_json:
        print_json(found.model_dump())
        return
    leads = "no broker leads" if found.leader is None else f"{found.leader} leads"
    print_lines(f"cluster {found.cluster}, version {found.version}: {leads}")
    print_table(_BROKER_COLUMNS, (_row(broker, found) for broker in found.brokers))
    if found.transitions:
        print_lines("", "transitions under way:")
        rows = ([_listed(each.get(name)) for name in _TRANSITION_COLUMNS] for each in found.transitions)
        print_table(_TRANSITION_COLUMNS, rows)


@app.command("drain")
def drain(
    broker: Annotated[str, typer.Argument(metavar="BROKER", help="Name or id of the broker.", show_default=False)],
    timeout: Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait until it owns nothing.")] = 300.0,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Have a broker hand over all it owns, and wait until it has. It goes on running, and may then be stopped."""
    drained = with_client(url, lambda client: drain_broker(client, broker, SystemClock(), timeout_seconds=timeout))
    if as_json:
        print_json(drained.model_dump())
    else:
        print_lines(f"broker {drained.broker} owns nothing any more")


async def drain_broker(client: AsyncClient, wanted: str, clock: Clock, *, timeout_seconds: float) -> BrokerDrain:
    """Ask for the drain until nothing is left. Asking again is safe, and who asks may stop at any time.

    Raises `InvalidInput` where there is no such broker, `CommandFailed` where it does not get there.
    """
    broker = pick_broker((await client.cluster()).brokers, wanted)
    deadline = clock.monotonic_seconds() + timeout_seconds
    drain = await client.drain_broker(broker)
    with _progress() as progress:
        task = progress.add_task(f"{broker}: segments handed over", total=drain.segments)
        most = drain.segments
        while drain.segments:
            if clock.monotonic_seconds() >= deadline:
                raise CommandFailed(f"after {timeout_seconds:g} seconds broker {broker} still holds {_left(drain)}")
            await clock.sleep(_ASK_SECONDS)
            try:
                drain = await client.drain_broker(broker)
            except NotFound as error:
                raise CommandFailed(f"broker {broker} left the cluster while it held {_left(drain)}") from error
            most = max(most, drain.segments)
            progress.update(task, total=most, completed=most - drain.segments)
    return drain


def pick_broker(brokers: Sequence[Broker], wanted: str) -> str:
    """The id of the broker whose id or name (the id without its incarnation) is `wanted`; raises `InvalidInput`."""
    ids = [each.broker for each in brokers]
    if wanted in ids:
        return wanted
    named = [each for each in ids if _name(each) == wanted]
    if not named:
        raise InvalidInput(unknown_name("broker", wanted, {_name(each) for each in ids}))
    if len(named) > 1:
        raise InvalidInput(f"several brokers are called {wanted!r}: name one by its id, {' or '.join(named)}")
    return named[0]


def _name(broker_id: str) -> str:
    return broker_id.rpartition(".")[0]


def _row(broker: Broker, cluster: Cluster) -> tuple[object, ...]:
    leads = broker.broker == cluster.leader
    return broker.broker, broker.url, broker.zone, broker.version, broker.state, broker.segments, "leads" * leads


def _listed(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _left(drain: BrokerDrain) -> str:
    return f"{drain.segments} {'segment' if drain.segments == 1 else 'segments'}"


def _progress() -> bars.Progress:
    return bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        console=Console(file=sys.stderr),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
