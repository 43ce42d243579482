"""Checks one segment on a store: every file that counts, what is missing between them, their chain, and payloads."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence, Set
from concurrent.futures import Executor
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise

from filer.keys import FileName
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, reach, recover_index
from filer.stores.store import Store
from filer.verification.chain_check import Link, check_chain
from filer.verification.stored_files import verify_file
from filer.verification.stored_payloads import CheckedPayloads, verify_payloads
from filer.verification.verdict import Verdict

FILES_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How a segment is read for a check.

    `from_offset`: files that end before it are left out. The one that ends there is read again, for the chain.
    `files_at_once` bounds the memory, at a row group for each. With `hashing`, its threads compute.
    """

    from_offset: int = 0
    files_at_once: int = FILES_AT_ONCE
    hashing: Executor | None = None


WHOLE = ReadPlan()


async def verify_segment(
    store: Store,
    ref: SegmentRef,
    *,
    start_offset: int,
    end_offset: int | None,
    seal_offset: int | None,
    plan: ReadPlan = WHOLE,
) -> AsyncGenerator[Verdict, None]:
    """A verdict on each file that counts, and on each that is missing; the later file's verdict reports a broken chain.

    After a file's verdict come those of the payloads to which its messages refer.

    `end_offset` is that of a sealed segment, None for an open one. `seal_offset` is that of the seal's file. The
    segment may grow meanwhile: messages that it gets later are not checked, and a file that was rolled up is looked for
    under its new name. All other files go in the order of their offsets. Raises `OutcomeUnknown`.
    """
    links: dict[FileName, Link | None] = {}
    payloads = CheckedPayloads()
    until: int | None = None
    while True:
        index = await recover_index(store, ref, start_offset=start_offset)
        until = index.end if until is None else until
        if end_offset is not None and not index.sealed and index.end < end_offset:
            reach(ref, index, end_offset)
        counting = [facts for facts in index.files if facts.start <= until and facts.end >= plan.from_offset]
        names = [facts.name for facts in counting]
        referring = {facts.name: facts.start for facts in counting if facts.refs and facts.end > plan.from_offset}
        left = [name for name in names if name not in links]
        at_name = {name: at for at, name in enumerate(names)}
        if not left:
            break
        for at in range(0, len(left), plan.files_at_once):
            batch = left[at : at + plan.files_at_once]
            for verdict in await _verify_files(store, ref, batch, start_offset, links, plan.hashing):
                yield verdict
            for verdict in _chain_breaks(
                ref, names[max(at_name[batch[0]] - 1, 0) : at_name[batch[-1]] + 2], links, {*batch}
            ):
                yield verdict
            files = {name: referring[name] for name in batch if name in referring}
            async with aclosing(verify_payloads(store, ref, files, payloads, hashing=plan.hashing)) as verdicts:
                async for verdict in verdicts:
                    yield verdict
    for verdict in _missing(ref, index, end_offset, seal_offset):
        yield verdict


async def _verify_files(
    store: Store,
    ref: SegmentRef,
    names: Sequence[FileName],
    start_offset: int,
    links: dict[FileName, Link | None],
    hashing: Executor | None,
) -> list[Verdict]:
    """The verdicts on files; adds their links. A file that no longer counts has none."""
    found = await asyncio.gather(*(verify_file(store, ref, name, hashing=hashing) for name in names))
    verdicts: list[Verdict] = []
    for name, (verdict, link) in zip(names, found, strict=True):
        links[name] = link
        if verdict.condition == "missing":
            # It may have been rolled up and deleted since the index was read. Then another file counts there.
            index = await recover_index(store, ref, start_offset=start_offset)
            if any(facts.start <= name.base < facts.end and facts.name != name for facts in index.files):
                continue
        verdicts.append(verdict)
    return verdicts


def _chain_breaks(
    ref: SegmentRef, names: Sequence[FileName], links: Mapping[FileName, Link | None], new: Set[FileName]
) -> list[Verdict]:
    """The breaks around each file that was just read (`new`), by its links and those of its neighbours in `names`."""
    verdicts: list[Verdict] = []
    for before, after in pairwise(names):
        pair = [link for name in (before, after) if (link := links.get(name)) is not None]
        if len(pair) == 2 and not new.isdisjoint((before, after)) and check_chain(pair).breaks:
            why = f"it was not written behind {before}: one of the two is not the file that was there"
            verdicts.append(Verdict(ref.key(after), "damaged", why))
    return verdicts


def _missing(ref: SegmentRef, index: SegmentIndex, end_offset: int | None, seal_offset: int | None) -> list[Verdict]:
    """The faults that the index shows: holes, a last file without a known end, no seal."""
    verdicts = [
        Verdict(
            ref.key(hole.name),
            "damaged" if hole.damaged else "missing",
            f"messages [{hole.start}, {hole.end}) cannot be read without it",
        )
        for hole in index.lost
    ]
    verdicts += [
        Verdict(ref.key(hole.name), "given up", f"nobody waits for the messages [{hole.start}, {hole.end})")
        for hole in index.holes
        if hole.given_up
    ]
    if ref.given_up.at(index.end) is not None:
        why = f"nobody waits for the messages from {index.end} on"
        verdicts.append(Verdict(ref.key(FileName(index.end)), "given up", why))
    if index.blocked is not None:
        why = f"it is the last file: nothing shows where the segment ends behind {index.end}"
        verdicts.append(Verdict(ref.key(index.blocked), "damaged", why))
    elif end_offset is not None and not index.sealed and seal_offset == end_offset:
        why = "it is the seal, which holds no messages, but the requests of producers"
        verdicts.append(Verdict(ref.key(FileName(end_offset)), "missing", why))
    return verdicts
