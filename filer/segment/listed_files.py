"""Compares the index of a segment with the files that the store lists.

An index is read once and then kept up to date by what its process does and by names. So it does not see that a file is
gone. Nor does it see that a roll-up is a new one: another process wrote it after the old one was deleted, or it was put
back after that. Such a roll-up has the messages that its name says, and mostly another size. Readers of bare files get
the size from the index, and refuse a file of another size.
"""

from dataclasses import dataclass, replace

from filer import keys
from filer.errors import CorruptFile, ObjectNotFound
from filer.keys import FileName
from filer.segment.live_files import FileFacts
from filer.segment.segment_index import SegmentIndex
from filer.segment.segment_log import SegmentRef, fetch_file
from filer.stores.store import Store


@dataclass(frozen=True, slots=True)
class Differences:
    """The files of an index that are not on the store, that are damaged, and what was learned anew of others."""

    gone: tuple[FileFacts, ...]
    damaged: tuple[FileFacts, ...]
    learned: tuple[tuple[FileFacts, FileFacts], ...]


async def compare_listed(store: Store, ref: SegmentRef, index: SegmentIndex) -> Differences:
    """What differs, by one listing and a request for each file that does. Changes nothing. Raises `StoreError`."""
    known = {facts.name: facts for facts in index.files}
    sizes: dict[FileName, int] = {}
    async for info in store.list(keys.segment_folder(ref.topic, ref.segment)):
        if (name := FileName.parse(info.key)) in known and name is not None:
            sizes[name] = info.size_bytes
    gone: list[FileFacts] = []
    damaged: list[FileFacts] = []
    learned: list[tuple[FileFacts, FileFacts]] = []
    for name, facts in known.items():
        if sizes.get(name) == facts.size_bytes:
            continue
        try:
            # A listing may lag behind: the file itself counts.
            found = (await fetch_file(store, ref, name)).facts
        except ObjectNotFound:
            gone.append(facts)
        except CorruptFile:
            damaged.append(facts)
        else:
            if found.size_bytes != facts.size_bytes and found.end == facts.end:
                learned.append((facts, replace(found, start=facts.start, stored_us=facts.stored_us)))
    return Differences(tuple(gone), tuple(damaged), tuple(learned))
