"""`mq verify`: read every byte of topics, here or by a broker, and report damaged and missing objects."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, get_args

import typer

from braidmq import AsyncClient, CheckedObject
from filer.errors import InvalidInput
from filer.keys import check_name
from filer.stores.store_address import StoreAddress
from filer.verification.verdict import Condition, Verdict
from mq.cli.connect import with_client
from mq.cli.diagnosis.wrong_records import WrongRecords
from mq.cli.failures import CommandFailed
from mq.cli.interrupts import INTERRUPTS
from mq.cli.offline import CheckProgress, check_directory
from mq.cli.options import Json, OfflineStore, S3Addressing, S3Endpoint, S3Region, Timeout, UrlIfGiven, lazily
from mq.cli.output import print_json, print_lines, print_table, size

MOST_TOLD = 10_000
"""Verdicts that are kept and printed; all are counted."""


def verify(
    context: typer.Context,
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="Topics to check; or --all.",
            show_default=False,
            autocompletion=lazily("complete_topic"),
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Check all topics, and the records of the cluster.")] = False,
    store: OfflineStore = "braid-data",
    url: UrlIfGiven = None,
    timeout: Timeout = None,
    endpoint: S3Endpoint = None,
    region: S3Region = None,
    addressing: S3Addressing = "auto",
    as_json: Json = False,
) -> None:
    """Check every byte of topics on their store, with or without brokers running. Changes nothing.

    With --url, a broker reads the store: nothing but its address is needed here. Prints each object that is damaged or
    missing. The exit code is 0 only if there is none.
    """
    if bool(topics) == every:
        raise InvalidInput("name the topics to check, or give --all")
    names = [check_name(name) for name in topics or ()]
    if url is not None and _is_chosen(context, "url", "store"):
        counts, told = with_client(url, timeout, lambda client: _verify_by_broker(client, names))
    else:
        # Code that reads a store is imported only if one is read here.
        from mq.cli.diagnosis.verify_store import verify_store

        check_directory(store)
        counts, told = INTERRUPTS.run(
            verify_store(StoreAddress(store, endpoint, region, addressing), names, most_told=MOST_TOLD)
        )
    _print(counts, told, as_json=as_json)
    wrong = counts["damaged"] + counts["missing"]
    if wrong:
        raise CommandFailed(f"{wrong} of {counts.total()} objects are damaged or missing")


def _is_chosen(context: typer.Context, name: str, other: str) -> bool:
    """Whether the option was given, and beats the other one: options of the command line go first."""
    rank, other_rank = _rank(context, name), _rank(context, other)
    if rank == other_rank and rank:
        raise InvalidInput(f"give --{name} or --{other}, not both")
    return rank > other_rank


def _rank(context: typer.Context, name: str) -> int:
    source = context.get_parameter_source(name)
    return {"COMMANDLINE": 2, "ENVIRONMENT": 1}.get("" if source is None else source.name, 0)


async def _verify_by_broker(client: AsyncClient, names: Sequence[str]) -> tuple["Counter[str]", list[Verdict]]:
    """As `verify_store`, by a broker."""
    done: Counter[str] = Counter()
    told: list[Verdict] = []
    wrong_records = WrongRecords()
    with CheckProgress("objects checked") as progress:
        everything: list[str | None] = [None, *await _all_topics(client)] if not names else [*names]
        for topic in everything:
            counts: Counter[str] = Counter()
            async for report in client.verify(topic):
                counts = Counter({each: getattr(report, each.replace(" ", "_")) for each in get_args(Condition)})
                if report.found is not None and wrong_records.is_known(report.found.key):
                    done[report.found.condition] -= 1
                elif report.found is not None and len(told) < MOST_TOLD:
                    told.append(_verdict(report.found))
                checked = (done + counts).total()
                text = f"objects checked, {size(report.bytes)} of {topic or 'the cluster'}, the last one {report.at}"
                progress.checked(text, checked)
            done += counts
    return done, told


async def _all_topics(client: AsyncClient) -> list[str]:
    """All topics, with those that cannot be used: their damage is reported too. A topic group includes its members."""
    usable = [each.topic async for each in client.topics(internal=True) if each.group in (None, each.topic)]
    return sorted([*usable, *[each.topic async for each in client.unusable_topics()]])


def _verdict(found: CheckedObject) -> Verdict:
    return Verdict(found.key, "missing" if found.condition == "missing" else "damaged", found.why)


def _print(counts: "Counter[str]", told: Sequence[Verdict], *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                **{each.replace(" ", "_"): counts[each] for each in get_args(Condition)},
                "objects": [{"key": each.key, "condition": each.condition, "why": each.why} for each in told],
            }
        )
        return
    if told:
        print_table(("object", "is", "why"), ((each.key, each.condition, each.why) for each in told))
    unchecked = f", {counts['unchecked']} of version 0.1 have no digests" if counts["unchecked"] else ""
    given_up = f", {counts['given up']} given up" if counts["given up"] else ""
    sound = "1 object is sound" if counts["ok"] == 1 else f"{counts['ok']} objects are sound"
    print_lines(f"{sound}{unchecked}{given_up}")
