"""Files of plain messages that are given as Parquet has them: the same bytes as of their table, without one."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from filer.format.compression import are_compressed
from filer.format.digests import BODY, FOOTER, NO_DIGEST, PREVIOUS, ROW_GROUPS, Hasher, with_footer_digest
from filer.format.plain.delta_packed import delta_packed, equally_spaced
from filer.format.plain.pages import (
    DELTA_BINARY_PACKED,
    LZ4_RAW,
    NO_CODEC,
    Column,
    Pages,
    null_column,
    number_statistics,
)
from filer.format.plain.plain_file import (
    BEGIN,
    EVENT_TIME,
    KEY,
    NEVER_THERE,
    OFFSET,
    PAGE_ROWS,
    TIMESTAMP,
    VALUE,
    footer_of,
    row_group,
    texts_column,
    written,
)
from filer.format.plain.prefixed import Texts

_REMEMBERED = 256


def file_of_texts(
    around: tuple[bytes, bytes],
    base: int,
    stamps_us: Sequence[tuple[int, int]],
    keys: Sequence[Texts] | None,
    values: Sequence[Texts],
    metadata: Mapping[str, str],
    previous: str,
    page_bytes: int,
) -> tuple[pa.Buffer, str]:
    """The file of messages from offset `base` on, and the digest in its footer.

    `stamps_us` say when so many messages were accepted, in order: (messages, microseconds). `keys` and `values` are
    those of requests, as many of each; there are keys of all messages or of none. `around` is `footer_around` of the
    file's schema; `metadata` and `previous` are as in `segment_file.Footer`.
    """
    rows = sum([each.rows for each in values])
    values_codec = LZ4_RAW if are_compressed(values) else NO_CODEC
    columns = (
        _offsets(base, rows),
        _stamps(stamps_us, rows),
        null_column(KEY, LZ4_RAW, rows, PAGE_ROWS) if keys is None else texts_column(KEY, LZ4_RAW, keys, page_bytes),
        texts_column(VALUE, values_codec, values, page_bytes),
        *_never_there(rows, values_codec),
    )
    group, place = row_group(columns, rows)
    parts = [part for column in columns for part in column.parts]
    body, of_group = Hasher(), Hasher()
    body.add(BEGIN)
    for part in parts:
        body.add(part)
        of_group.add(part)
    pairs = {
        **metadata,
        PREVIOUS: previous,
        BODY: body.digest(),
        ROW_GROUPS: of_group.digest(),
        FOOTER: NO_DIGEST,
    }
    footer, digest = with_footer_digest(footer_of(around, rows, group, pairs))
    return written([BEGIN, *parts, footer], place + len(footer)), digest


def _offsets(base: int, rows: int) -> Column:
    pages = Pages(OFFSET, LZ4_RAW, DELTA_BINARY_PACKED)
    for first in range(base, base + rows, PAGE_ROWS):
        count = min(PAGE_ROWS, base + rows - first)
        statistics = number_statistics(first, first + count - 1)
        pages.add(count, (equally_spaced(first, 1, count),), b"\x1c" + statistics)
    return pages.column(statistics=number_statistics(base, base + rows - 1))


def _stamps(stamps_us: Sequence[tuple[int, int]], rows: int) -> Column:
    first_us, last_us = stamps_us[0][1], stamps_us[-1][1]
    pages = Pages(TIMESTAMP, LZ4_RAW, DELTA_BINARY_PACKED)
    each_us = None
    if first_us != last_us:  # they do not fall
        counts, times_us = np.array(stamps_us, np.int64).T
        each_us = np.repeat(times_us, counts)
    for start in range(0, rows, PAGE_ROWS):
        count = min(PAGE_ROWS, rows - start)
        if each_us is None:
            packed, statistics = equally_spaced(first_us, 0, count), number_statistics(first_us, first_us)
        else:
            part = each_us[start : start + count]
            packed, statistics = delta_packed(part), number_statistics(int(part[0]), int(part[-1]))
        pages.add(count, (packed,), b"\x1c" + statistics)
    return pages.column(statistics=number_statistics(first_us, last_us))


@lru_cache(maxsize=_REMEMBERED)
def _never_there(rows: int, codec_of_refs: int) -> Sequence[Column]:
    """The columns without a value. Those of references are compressed if values are."""
    codecs = {leaf: codec_of_refs if leaf.path[0] == "_ref" else LZ4_RAW for leaf in (EVENT_TIME, *NEVER_THERE)}
    return tuple(null_column(leaf, codec, rows, PAGE_ROWS) for leaf, codec in codecs.items())
