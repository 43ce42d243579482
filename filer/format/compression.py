"""Which columns of an owner's file are compressed, and how.

LZ4 costs little where it helps. It only copies values that are compressed or encrypted already; that is a fifth of the
work of encoding a large file, and readers pay for it again. So a sample of the values is tried first.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import pyarrow as pa

from filer.format.plain.prefixed import Texts

Codec: TypeAlias = Literal["lz4", "zstd"]
Compression: TypeAlias = Codec | Mapping[str, Codec]
"""One for all columns, or one by the path of a column in the Parquet schema. Columns without one are not compressed."""

_ALL_BUT_VALUES: Mapping[str, Codec] = {
    "_offset": "lz4",
    "_timestamp": "lz4",
    "key": "lz4",
    "event_time": "lz4",
    "headers.key_value.key": "lz4",
    "headers.key_value.value": "lz4",
}
_TRIED_FROM_BYTES = 256 * 1024
"""Values with fewer bytes in all are compressed untried: there is little to save."""
_SAMPLES, _SAMPLE_BYTES = 4, 8 * 1024
_WORTHWHILE = 0.95
_LZ4 = pa.Codec("lz4_raw")


def owner_compression(table: pa.Table) -> Compression:
    """How the columns of a file of `table` are compressed: with LZ4, except values that it does not make smaller."""
    values = table["value"]
    if values.nbytes < _TRIED_FROM_BYTES:
        return "lz4"
    return "lz4" if _become_smaller(_samples(values)) else _ALL_BUT_VALUES


def are_compressed(values: Sequence[Texts]) -> bool:
    """As `owner_compression`, for values as they are in the file: whether they are compressed as all other columns."""
    return sum([each.size_bytes for each in values]) < _TRIED_FROM_BYTES or _become_smaller(_samples_of(values))


def _become_smaller(samples: "Iterable[pa.Buffer | memoryview]") -> bool:
    plain_bytes = compressed_bytes = 0
    for sample in samples:
        plain_bytes += len(sample)
        compressed_bytes += len(_LZ4.compress(sample, asbytes=True))
    return compressed_bytes <= _WORTHWHILE * plain_bytes


def _samples_of(values: Sequence[Texts]) -> Iterator[memoryview]:
    """As `_samples`."""
    step = -(-sum([each.rows for each in values]) // _SAMPLES)
    row = 0
    for texts in values:
        while row < texts.rows:
            begin, end = int(texts.ends[row]), int(texts.ends[min(row + step, texts.rows)])
            yield texts.data[begin : min(end, begin + _SAMPLE_BYTES)]
            row += step
        row -= texts.rows


def _samples(values: pa.ChunkedArray) -> Iterator[pa.Buffer]:
    """Some bytes of a column, from places that are spread evenly over its rows."""
    step = -(-len(values) // _SAMPLES)
    for row in range(0, len(values), step):
        chunk = next(chunk for chunk in values.slice(row, step).chunks if len(chunk))
        sample = _first_bytes(chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk)
        if sample is not None:
            yield sample


def _first_bytes(values: pa.Array) -> pa.Buffer | None:
    """The bytes of an array of strings or bytes, at most a sample of them; None if there are none."""
    _, offsets, data = values.buffers()
    (first,) = struct.unpack_from("<i", offsets, 4 * values.offset)
    (end,) = struct.unpack_from("<i", offsets, 4 * (values.offset + len(values)))
    return data.slice(first, min(end - first, _SAMPLE_BYTES)) if end > first else None
