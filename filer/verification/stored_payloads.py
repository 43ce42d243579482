"""Checks payloads on a store: those that the messages of a segment file refer to. Each is read in pieces."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import aclosing

from filer.errors import CorruptFile, ObjectNotFound
from filer.format.digests import PIECE_BYTES
from filer.format.segment_file import FileEnd, decode_columns
from filer.keys import FileName
from filer.segment.segment_log import SegmentRef, fetch_end, recover_index
from filer.segment.segment_reader import fetch_row_group
from filer.stores.store import Store
from filer.topic.topic_state import TopicState
from filer.uploads import Reference
from filer.verification.payload_check import PayloadCheck, check_size
from filer.verification.stored_files import hash_with
from filer.verification.verdict import Verdict

MOST_REMEMBERED = 10_000
ROWS_AT_ONCE = 1_000


class CheckedPayloads:
    """The payloads that were checked last, so that a payload of many messages is read once."""

    def __init__(self, *, limit: int = MOST_REMEMBERED) -> None:
        self._limit = limit
        self._keys: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        """Remember a payload."""
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self._limit:
            self._keys.popitem(last=False)


async def verify_payloads(
    store: Store,
    ref: SegmentRef,
    files: Mapping[FileName, int],
    checked: CheckedPayloads,
    *,
    hashing: Executor | None = None,
) -> AsyncGenerator[Verdict, None]:
    """A verdict on each payload to which the messages of sound files refer, of each file from an offset on.

    The files are read again for that, a row group at a time. With `hashing`, its threads compute. Faults of a file
    itself are left to its own check. Raises `OutcomeUnknown`.
    """
    for name, from_offset in files.items():
        key = ref.key(name)
        try:
            async for offset, reference in _references(store, key):
                if offset < from_offset or reference.key(ref.topic) in checked:
                    continue
                verdict = await verify_payload(store, ref, offset, reference, hashing=hashing)
                if verdict.condition == "missing":
                    # The sweep deletes a payload only when no file on the store refers to it any more: retention may
                    # have removed this one meanwhile. If it was rolled up, the check of the roll-up reports it.
                    await store.head(key)
                checked.add(verdict.key)
                yield verdict
        except (ObjectNotFound, CorruptFile):
            continue


async def verify_payloads_of(store: Store, state: TopicState) -> AsyncGenerator[Verdict, None]:
    """A verdict on each payload of a topic, as `verify_payloads`."""
    for segment in state.segments:
        ref, checked = SegmentRef.of(state, segment), CheckedPayloads()
        index = await recover_index(store, ref, start_offset=segment.start_offset)
        files = {facts.name: facts.start for facts in index.files if facts.refs}
        async with aclosing(verify_payloads(store, ref, files, checked)) as verdicts:
            async for verdict in verdicts:
                yield verdict


async def _references(store: Store, key: str) -> AsyncGenerator[tuple[int, Reference], None]:
    """The references in a segment file with the offsets of their messages. Raises as `fetch_end`."""
    end = await fetch_end(store, key)
    for number in range(end.metadata.num_row_groups):
        for each in _in_row_group(end, number, await fetch_row_group(store, key, end, number)):
            yield each


def _in_row_group(end: FileEnd, number: int, group: bytes) -> Iterator[tuple[int, Reference]]:
    table = decode_columns(end, number, group, ["_offset", "_ref"])
    table = table.filter(table["_ref"].is_valid())
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        for row in batch.to_pylist():
            yield row["_offset"], Reference.from_row(row["_ref"])


async def verify_payload(
    store: Store, ref: SegmentRef, offset: int, reference: Reference, *, hashing: Executor | None = None
) -> Verdict:
    """The condition of the payload of one message. Raises `OutcomeUnknown`."""
    key = reference.key(ref.topic)
    try:
        info = await store.head(key)
        check_size(reference, info.size_bytes)
        check = PayloadCheck(reference)
        for begin in range(0, info.size_bytes, PIECE_BYTES):
            piece = (await store.get(key, start=begin, stop=min(begin + PIECE_BYTES, info.size_bytes))).data
            await hash_with(hashing, piece, check.add)
        return Verdict(key, "ok" if check.finish(info.etag) else "unchecked")
    except CorruptFile as error:
        return Verdict(key, "damaged", f"message {ref.segment}-{offset} refers to it, and {error}")
    except ObjectNotFound:
        return Verdict(key, "missing", f"message {ref.segment}-{offset} refers to it, and it is not there")
