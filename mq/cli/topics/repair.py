"""`mq topic repair`: report which messages of a topic are lost, and give them up if the user accepts that."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from filer import keys
from filer.clock import SystemClock
from filer.errors import InvalidInput
from filer.keys import RESERVED_TOPICS, check_name
from filer.stores.open_store import open_store
from filer.stores.store_address import StoreAddress
from filer.topic.catalogue import Catalogue
from filer.verification.giving_up import give_up
from filer.verification.losses import Loss, find_losses
from filer.verification.stored_payloads import verify_payloads_of
from filer.verification.stored_topic import verify_lists
from filer.verification.verdict import Verdict
from mq.cli.failures import CommandFailed
from mq.cli.interrupts import INTERRUPTS
from mq.cli.offline import CheckProgress, check_directory
from mq.cli.options import Json, OfflineStore, S3Addressing, S3Endpoint, S3Region, TopicName
from mq.cli.output import print_json, print_lines, print_table
from mq.cli.topics.given_up import last_offset

_COLUMNS = ("segment", "from offset", "to offset", "messages", "object", "is")


@dataclass(slots=True)
class _Findings:
    """The losses. `others` are lists and payloads: they stop no reader, so nothing is given up for them."""

    losses: list[Loss] = field(default_factory=list)
    others: list[Verdict] = field(default_factory=list)


def repair(
    topic: TopicName,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Give up what is lost. It stays given up, even if it is put back.")
    ] = False,
    store: OfflineStore = "braid-data",
    endpoint: S3Endpoint = None,
    region: S3Region = None,
    addressing: S3Addressing = "auto",
    as_json: Json = False,
) -> None:
    """Tell which messages of a topic are lost, and give them up with --accept-loss, so that readers pass them by.

    Works on the store, with or without brokers running. Nothing on it is moved or deleted. Put the objects back instead
    if you can: what is given up stays so. The exit code is 0 if nothing is lost, or all of it is given up.
    """
    check_name(topic)
    if accept_loss and topic in RESERVED_TOPICS:
        raise InvalidInput(
            f"topic {topic!r} is the brokers' own, and what it has lost is not given up: put the objects back, from a "
            "backup or the versions of the bucket"
        )
    check_directory(store)
    address = StoreAddress(store, endpoint, region, addressing)
    findings = INTERRUPTS.run(_repair(address, topic, accept_loss=accept_loss))
    accepted = accept_loss and bool(findings.losses)
    _print(topic, findings, accepted=accepted, as_json=as_json)
    if findings.losses and not accepted:
        raise CommandFailed(
            f"{_count(findings.losses)} of topic {topic!r} cannot be read, and nothing was changed: put the objects "
            "back, or give the messages up with --accept-loss"
        )
    if findings.others:
        first, more = findings.others[0], len(findings.others) - 1
        besides = f", and so {'is one more object' if more == 1 else f'are {more} more objects'}" if more else ""
        raise CommandFailed(
            f"{first.key} is {first.condition}{besides}: put back what you can; nobody is kept from reading on, so "
            "there is nothing to give up for it"
        )


async def _repair(address: StoreAddress, topic: str, *, accept_loss: bool) -> _Findings:
    clock = SystemClock()
    store = open_store(address, clock)
    try:
        catalogue = Catalogue(store, clock)
        record = await catalogue.read(topic)
        if record is None or record.state.deleted:
            raise InvalidInput(f"there is no topic {topic!r} on this store")
        findings = _Findings()
        with CheckProgress("files checked") as progress:

            def on_checked(key: str) -> None:
                progress.checked(f"files checked, the last one {key}")

            async for loss in find_losses(store, record.state, on_checked=on_checked):
                findings.losses.append(loss)
        # A damaged snapshot needs no repair: the next broker that reads the segment writes it again.
        snapshots = keys.snapshots_folder(topic)
        for verdicts in (verify_lists(store, topic), verify_payloads_of(store, record.state)):
            async for verdict in verdicts:
                if not verdict.is_sound and not verdict.key.startswith(snapshots):
                    findings.others.append(verdict)
        if accept_loss and findings.losses:
            await give_up(store, clock, catalogue, topic, findings.losses)
        return findings
    finally:
        await store.close()


def _print(topic: str, findings: _Findings, *, accepted: bool, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "topic": topic,
                "accepted": accepted,
                "losses": [_shown(loss) for loss in findings.losses],
                "objects": [
                    {"key": each.key, "condition": each.condition, "why": each.why} for each in findings.others
                ],
            }
        )
        return
    if findings.losses:
        print_table(_COLUMNS, map(_row, findings.losses))
    else:
        print_lines(f"nothing of topic {topic} is lost that has to be given up")
    print_lines(*(f"{each.condition}: {each.key}: {each.why}" for each in findings.others))
    if accepted:
        print_lines("", f"given up: {_count(findings.losses)} of topic {topic}; readers pass by from now on")


def _count(losses: Sequence[Loss]) -> str:
    """The number of these messages, in words."""
    known = sum(loss.messages or 0 for loss in losses)
    unknown = sum(loss.messages is None for loss in losses)
    more = f" and those of {unknown} {'file' if unknown == 1 else 'files'} of unknown length" if unknown else ""
    return f"{known} {'message' if known == 1 else 'messages'}{more}"


def _shown(loss: Loss) -> dict[str, Any]:
    return {
        "segment": loss.segment,
        "offset": loss.offset,
        "next_offset": loss.next_offset,
        "messages": loss.messages,
        "key": loss.key,
        "what": loss.what,
    }


def _row(loss: Loss) -> tuple[object, ...]:
    messages = "unknown" if loss.messages is None else str(loss.messages)
    return (
        str(loss.segment), str(loss.offset), last_offset(loss.offset, loss.next_offset), messages, loss.key, loss.what,
    )  # fmt: skip
