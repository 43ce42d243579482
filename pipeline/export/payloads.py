"""Fetches values that are stored beside the log into the column of values: a table of their members has them too."""

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filer import keys
from filer.errors import CorruptFile, DataMissing, ObjectNotFound
from filer.stores.store import Store

MOST_PAYLOAD_BYTES = 64 * 1024 * 1024
"""A larger payload stays beside the log. So many bytes of payloads are in memory together."""


async def with_payloads(store: Store, topic: str, messages: pa.Table) -> AsyncIterator[pa.Table]:
    """Yield the messages in order, in pieces, with their payloads as values. Too large ones keep their null.

    Raises `DataMissing` and `CorruptFile` for payloads that differ from what the messages say.
    """
    begin, held_bytes = 0, 0
    found: dict[int, bytes] = {}
    refs = messages["_ref"]
    for row in np.flatnonzero(refs.is_valid().to_numpy()).tolist():
        ref: dict[str, Any] = refs[row].as_py()
        if ref["size"] > MOST_PAYLOAD_BYTES:
            continue
        if held_bytes and held_bytes + ref["size"] > MOST_PAYLOAD_BYTES:
            yield _filled(messages.slice(begin, row - begin), begin, found)
            begin, held_bytes, found = row, 0, {}
        found[row] = await _fetched(store, topic, ref)
        held_bytes += ref["size"]
    yield _filled(messages.slice(begin), begin, found)


def _filled(messages: pa.Table, first_row: int, found: dict[int, bytes]) -> pa.Table:
    if not found:
        return messages
    index = messages.schema.get_field_index("value")
    values = messages["value"].combine_chunks()
    mask = np.zeros(messages.num_rows, bool)
    mask[[row - first_row for row in found]] = True
    payloads = pa.array(list(found.values()), pa.binary())
    try:
        filled = pc.replace_with_mask(values, pa.array(mask), payloads.cast(values.type))
    except pa.ArrowInvalid:
        # Not all of them are text: a payload that is none cannot be a value of this topic.
        return messages
    return messages.set_column(index, messages.schema.field(index), filled)


async def _fetched(store: Store, topic: str, ref: dict[str, Any]) -> bytes:
    key = keys.topic_folder(topic) + ref["uri"]
    try:
        data = (await store.get(key)).data
    except ObjectNotFound as error:
        raise DataMissing(f"{key} is gone: it is the value of a message") from error
    if len(data) != ref["size"] or (ref["sha256"] is not None and hashlib.sha256(data).hexdigest() != ref["sha256"]):
        raise CorruptFile(f"{key} is not the value that its message refers to")
    return data
