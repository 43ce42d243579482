"""`mq verify`: read every byte of topics on their store, and tell what is damaged or missing."""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich import progress as bars
from rich.console import Console

from filer.clock import SystemClock
from filer.errors import InvalidInput
from filer.keys import check_name
from filer.stores.open_store import open_store
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress
from filer.topic.catalogue import Catalogue
from filer.verification.stored_topic import verify_cluster, verify_topic
from filer.verification.verdict import Verdict
from mq.cli.failures import CommandFailed
from mq.cli.options import Json, S3Addressing, S3Endpoint, S3Region
from mq.cli.output import print_json, print_lines, print_table

MOST_TOLD = 10_000
"""Verdicts that are kept and printed; all are counted."""


def verify(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Topics to check.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Check all topics, and the records of the cluster.")] = False,
    store: Annotated[
        str,
        typer.Option("--store", envvar="BRAIDMQ_STORE", help="The store: a directory or s3://bucket/prefix."),
    ] = "braid-data",
    endpoint: S3Endpoint = None,
    region: S3Region = None,
    addressing: S3Addressing = "auto",
    as_json: Json = False,
) -> None:
    """Check every byte of topics on their store, with or without brokers running. Changes nothing.

    Prints each object that is damaged or missing. The exit code is 0 only if there is none.
    """
    if bool(topics) == every:
        raise InvalidInput("name the topics to check, or give --all")
    names = [check_name(name) for name in topics or ()]
    _check_directory(store)
    counts, told = uvloop.run(_verify(StoreAddress(store, endpoint, region, addressing), names))
    _print(counts, told, as_json=as_json)
    wrong = counts["damaged"] + counts["missing"]
    if wrong:
        raise CommandFailed(f"{wrong} of {counts.total()} objects are damaged or missing")


def _check_directory(url: str) -> None:
    """Raise `InvalidInput` for a directory that is not there: opening it as a store would make it."""
    path = url.removeprefix("file://")
    if "://" not in path and not Path(path).is_dir():
        raise InvalidInput(f"there is no directory {path!r}: name the store with --store")


async def _verify(address: StoreAddress, names: Sequence[str]) -> tuple["Counter[str]", list[Verdict]]:
    """How many objects are in each condition, and those that are not sound."""
    clock = SystemClock()
    store = open_store(address, clock)
    counts: Counter[str] = Counter()
    told: list[Verdict] = []
    try:
        catalogue = Catalogue(store, clock)
        with _progress() as progress:
            task = progress.add_task("objects checked", total=None)
            async for verdict in _verdicts(store, catalogue, names):
                counts[verdict.condition] += 1
                if not verdict.is_sound and len(told) < MOST_TOLD:
                    told.append(verdict)
                progress.update(task, advance=1, description=f"objects checked, the last one {verdict.key}")
    finally:
        await store.close()
    return counts, told


async def _verdicts(store: Store, catalogue: Catalogue, names: Sequence[str]) -> AsyncIterator[Verdict]:
    if not names:
        async for verdict in verify_cluster(store):
            yield verdict
    for name in names or await catalogue.names():
        checked = 0
        async for verdict in verify_topic(store, catalogue, name):
            checked += 1
            yield verdict
        if not checked:
            raise InvalidInput(f"there is no topic {name!r} on this store")


def _print(counts: "Counter[str]", told: Sequence[Verdict], *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                **{condition: counts[condition] for condition in ("ok", "unchecked", "damaged", "missing")},
                "objects": [{"key": each.key, "condition": each.condition, "why": each.why} for each in told],
            }
        )
        return
    if told:
        print_table(("object", "is", "why"), ((each.key, each.condition, each.why) for each in told))
    unchecked = f", {counts['unchecked']} of version 0.1 have no digests" if counts["unchecked"] else ""
    print_lines(f"{counts['ok']} objects are sound{unchecked}")


def _progress() -> bars.Progress:
    return bars.Progress(
        bars.SpinnerColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.description}"),
        console=Console(file=sys.stderr),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
