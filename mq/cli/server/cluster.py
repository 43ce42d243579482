"""`mq cluster`: show the brokers and what they own; drain a broker and take it back."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from braidmq import AsyncClient, NotFound
from braidmq.defaults import LONGEST_DELIVERY_TIMEOUT_SECONDS
from braidmq.models import Broker, BrokerDrain, Cluster
from filer.clock import Clock, SystemClock
from filer.errors import InvalidInput
from filer.nearest import unknown_name
from mq.cli.connect import with_client
from mq.cli.failures import CommandFailed
from mq.cli.options import DEFAULT_URL, Json, Timeout, Url, duration_seconds, lazily
from mq.cli.output import print_json, print_lines, print_table

if TYPE_CHECKING:
    from rich import progress as bars

_POLL_SECONDS = 0.5
_STALL_SECONDS = 60.0
_BROKER_COLUMNS = ("broker", "url", "zone", "version", "state", "segments", "leads")
_TRANSITION_COLUMNS = ("topic", "reason", "seal", "open")

_BrokerName = Annotated[
    str,
    typer.Argument(
        metavar="BROKER",
        help="Name or id of the broker.",
        show_default=False,
        autocompletion=lazily("complete_broker"),
    ),
]


def status(url: Url = DEFAULT_URL, timeout: Timeout = None, as_json: Json = False) -> None:
    """Show the brokers, how many segments each owns, the leader, and transitions in progress."""
    found = with_client(url, timeout, lambda client: client.cluster())
    if as_json:
        print_json(found.model_dump())
        return
    leads = "no broker leads" if found.leader is None else f"{found.leader} leads"
    print_lines(f"cluster {found.cluster}, version {found.version}: {leads}")
    for problem in found.problems:
        print_lines(f"{problem['type']}: {problem['detail']}")
    print_table(_BROKER_COLUMNS, (_row(broker, found) for broker in found.brokers))
    if found.transitions:
        print_lines("", "transitions under way:")
        rows = ([_listed(each.get(name)) for name in _TRANSITION_COLUMNS] for each in found.transitions)
        print_table(_TRANSITION_COLUMNS, rows)


def drain(
    broker: _BrokerName,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            parser=duration_seconds(0.1, LONGEST_DELIVERY_TIMEOUT_SECONDS),
            metavar="DURATION",
            help="How long to wait while no segment moves (default: 1m), and to go on trying when no broker answers "
            "(default: 30s; not at all if none has answered yet).",
            show_default=False,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: Json = False,
) -> None:
    """Make a broker hand over all its segments, and wait until it has. It keeps running and may then be stopped."""
    stall_seconds = _STALL_SECONDS if timeout is None else timeout
    drained = with_client(
        url, timeout, lambda client: drain_broker(client, broker, SystemClock(), timeout_seconds=stall_seconds)
    )
    if as_json:
        print_json(drained.model_dump())
    else:
        print_lines(f"broker {drained.broker} owns nothing any more")


def undrain(
    broker: _BrokerName,
    url: Url = DEFAULT_URL,
    timeout: Timeout = None,
    as_json: Json = False,
) -> None:
    """Let a drained broker own segments again."""

    async def work(client: AsyncClient) -> BrokerDrain:
        return await client.undrain_broker(pick_broker((await client.cluster()).brokers, broker))

    undrained = with_client(url, timeout, work)
    if as_json:
        print_json(undrained.model_dump())
    else:
        print_lines(f"broker {undrained.broker} takes segments again")


async def drain_broker(client: AsyncClient, wanted: str, clock: Clock, *, timeout_seconds: float) -> BrokerDrain:
    """Request the drain until no segment is left, or none has moved for `timeout_seconds`.

    The request may be repeated, and the caller may stop at any time. The loop ends: the time-out starts anew only when
    fewer segments are left than ever before. Raises `InvalidInput` if there is no such broker, `Conflict` if no other
    broker could take over, and `CommandFailed` if the drain does not complete.
    """
    broker = pick_broker((await client.cluster()).brokers, wanted)
    drain = await client.drain_broker(broker)
    most = fewest = drain.segments
    moved_seconds = clock.monotonic_seconds()
    with _progress() as progress:
        task = progress.add_task(f"{broker}: segments handed over", total=most)
        while drain.segments:
            if clock.monotonic_seconds() - moved_seconds >= timeout_seconds:
                raise CommandFailed(_stalled(drain, timeout_seconds))
            await clock.sleep(_POLL_SECONDS)
            drain = await _request_again(client, drain)
            if drain.segments < fewest:
                fewest, moved_seconds = drain.segments, clock.monotonic_seconds()
            most = max(most, drain.segments)
            progress.update(task, total=most, completed=most - drain.segments)
    return drain


async def _request_again(client: AsyncClient, drain: BrokerDrain) -> BrokerDrain:
    try:
        return await client.drain_broker(drain.broker)
    except NotFound as error:
        raise CommandFailed(f"broker {drain.broker} left the cluster while it had {_left(drain)}") from error


def _stalled(drain: BrokerDrain, timeout_seconds: float) -> str:
    return (
        f"broker {drain.broker} still has {_left(drain)}, and none has moved for {timeout_seconds:g} seconds: check "
        "`mq cluster status` for a leader and for other brokers that do not drain; the leader's log has the reason"
    )


def pick_broker(brokers: Sequence[Broker], wanted: str) -> str:
    """The id of the broker with the id or name `wanted`. A name is an id without its incarnation.

    Raises `InvalidInput` if no broker, or more than one, has that name.
    """
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


def _progress() -> "bars.Progress":
    from rich import progress as bars
    from rich.console import Console

    return bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        console=Console(file=sys.stderr),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
