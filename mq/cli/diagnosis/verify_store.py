"""Checks every byte of topics on a store that is read here."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from filer.clock import SystemClock
from filer.errors import InvalidInput, UnreadableObject
from filer.stores.open_store import open_store
from filer.stores.store import Store
from filer.stores.store_address import StoreAddress
from filer.topic.catalogue import Catalogue
from filer.verification.stored_topic import verify_cluster, verify_topic
from filer.verification.verdict import Verdict
from mq.cli.diagnosis.wrong_records import WrongRecords
from mq.cli.offline import CheckProgress


async def verify_store(
    address: StoreAddress, names: Sequence[str], *, most_told: int
) -> tuple["Counter[str]", list[Verdict]]:
    """Count the objects in each condition, and return those that are not sound, at most `most_told`.

    Checks the topics of these names, or everything. Raises `InvalidInput` for a topic that does not exist.
    """
    clock = SystemClock()
    store = open_store(address, clock)
    counts: Counter[str] = Counter()
    told: list[Verdict] = []
    try:
        catalogue = Catalogue(store, clock)
        wrong_records = WrongRecords()
        with CheckProgress("objects checked") as progress:
            async for verdict in _verdicts(store, catalogue, names):
                if not verdict.is_sound and wrong_records.is_known(verdict.key):
                    continue
                counts[verdict.condition] += 1
                if not verdict.is_sound and len(told) < most_told:
                    told.append(verdict)
                progress.checked(f"objects checked, the last one {verdict.key}")
    finally:
        await store.close()
    return counts, told


async def _is_member(catalogue: Catalogue, name: str) -> bool:
    """Whether the name is known to be a member of a topic group."""
    with suppress(UnreadableObject):
        return await catalogue.group_of(name) is not None
    return False


async def _check_no_member(catalogue: Catalogue, name: str) -> None:
    """Raise `InvalidInput` for a member of a topic group: it has no files, so a sound result would mean nothing."""
    with suppress(UnreadableObject):  # the check of the topic reports it
        if (group := await catalogue.group_of(name)) is not None:
            raise InvalidInput(f"the messages of {name!r} lie in the files of topic group {group!r}: check that")


async def _verdicts(store: Store, catalogue: Catalogue, names: Sequence[str]) -> AsyncIterator[Verdict]:
    if not names:
        async for verdict in verify_cluster(store):
            yield verdict
    for name in names or await catalogue.names():
        checked = 0
        if names:
            await _check_no_member(catalogue, name)
        elif await _is_member(catalogue, name):
            continue  # its record is checked with its topic group
        async for verdict in verify_topic(store, catalogue, name):
            checked += 1
            yield verdict
        if not checked:
            raise InvalidInput(f"there is no topic {name!r} on this store")
