"""Files of a few plain messages, made of their keys and values without a table: the same bytes, in less time.

A publish of one message waits for such a file. While it is made, nothing else in this process goes on. The parts that
are the same in every file of as many messages are made once.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from filer.format.digests import BODY, FOOTER, NO_DIGEST, PREVIOUS, ROW_GROUPS, digest_of, with_footer_digest
from filer.format.plain.delta_packed import delta_packed, equally_spaced
from filer.format.plain.pages import (
    DELTA_BINARY_PACKED,
    LZ4_RAW,
    PLAIN,
    Column,
    Leaf,
    Pages,
    levels,
    null_column,
    number_statistics,
)
from filer.format.plain.plain_file import (
    BEGIN,
    EVENT_TIME,
    INT32,
    KEY,
    NEVER_THERE,
    OFFSET,
    PAGE_ROWS,
    TIMESTAMP,
    VALUE,
    footer_of,
    row_group,
)

MOST_MESSAGES, MOST_BYTES = 1024, 250 * 1024
"""Beyond these limits the work for each message counts, which Arrow does faster, and values are tried first."""
_REMEMBERED = 256


def file_of_few(
    around: tuple[bytes, bytes],
    base: int,
    stamps_us: Sequence[int],
    keys: Sequence[bytes] | None,
    values: Sequence[bytes],
    metadata: Mapping[str, str],
    previous: str,
) -> tuple[bytes, str]:
    """The file of messages from offset `base` on, and the digest in its footer.

    There are at most `MOST_MESSAGES`, with `MOST_BYTES` of keys and values. `around` is `footer_around` of the file's
    schema; `metadata` and `previous` are as in `segment_file.Footer`.
    """
    rows = len(values)
    columns = (
        _numbers(OFFSET, equally_spaced(base, 1, rows), base, base + rows - 1, rows),
        _numbers(TIMESTAMP, _packed(stamps_us), stamps_us[0], stamps_us[-1], rows),
        null_column(KEY, LZ4_RAW, rows, PAGE_ROWS) if keys is None else _texts(KEY, keys),
        _texts(VALUE, values),
        *_never_there(rows),
    )
    group, _ = row_group(columns, rows)
    body = b"".join((BEGIN, *(part for column in columns for part in column.parts)))
    pairs = {
        **metadata,
        PREVIOUS: previous,
        BODY: digest_of(body),
        ROW_GROUPS: digest_of(memoryview(body)[len(BEGIN) :]),
        FOOTER: NO_DIGEST,
    }
    footer, digest = with_footer_digest(footer_of(around, rows, group, pairs))
    return body + footer, digest


@lru_cache(maxsize=_REMEMBERED)
def _never_there(rows: int) -> Sequence[Column]:
    return tuple(null_column(leaf, LZ4_RAW, rows, PAGE_ROWS) for leaf in (EVENT_TIME, *NEVER_THERE))


def _packed(stamps_us: Sequence[int]) -> bytes:
    first = stamps_us[0]
    if first == stamps_us[-1]:  # they do not fall
        return equally_spaced(first, 0, len(stamps_us))
    return delta_packed(np.array(stamps_us, np.int64))


def _numbers(leaf: Leaf, packed: bytes, least: int, most: int, rows: int) -> Column:
    statistics = number_statistics(least, most)
    pages = Pages(leaf, LZ4_RAW, DELTA_BINARY_PACKED)
    pages.add(rows, (packed,), b"\x1c" + statistics)
    return pages.column(statistics=statistics)


def _texts(leaf: Leaf, texts: Sequence[bytes]) -> Column:
    rows = len(texts)
    sizes = [*map(len, texts)]
    parts = [levels(rows, 1)]
    for size_bytes, each in zip(sizes, texts, strict=True):
        parts += (INT32.pack(size_bytes), each)
    pages = Pages(leaf, LZ4_RAW, PLAIN)
    pages.add(rows, (b"".join(parts),))
    return pages.column(text_bytes=sum(sizes))
