"""Checks the digests in a bulk load's file: readers check them again once it is adopted."""

from collections.abc import Iterator

import pyarrow.parquet as pq

from filer.bulk_load.row_group_lots import Read
from filer.errors import LoadRefused
from filer.format.digests import PIECE_BYTES, Hasher, digests_from_metadata
from filer.format.segment_file import row_group_range


def check_load_digests(read: Read, metadata: pq.FileMetaData, footer_digest: str | None, *, body_bytes: int) -> None:
    """Raises `LoadRefused` if bytes before the footer are not those of its digests. Reads all of them, piece by piece.

    `footer_digest` is what `check_footer` returned. A file without digests passes. Raises `CorruptFile` if it has only
    some. The caller must have checked that every row group lies before the footer.
    """
    pairs = {name: value.decode() for name, value in (metadata.metadata or {}).items()}
    stated = digests_from_metadata(pairs, footer_digest)
    if stated is None:
        return
    if len(stated.row_groups) != metadata.num_row_groups:
        raise LoadRefused(f"its footer has digests of {len(stated.row_groups)} of {metadata.num_row_groups} row groups")
    body = Hasher()
    reached = 0
    for number, expected in enumerate(stated.row_groups):
        start, stop = row_group_range(metadata, number)
        if start < reached:
            raise LoadRefused(f"row group {number} does not lie after the one before it")
        group = Hasher()
        for piece in _pieces(read, reached, start):
            body.add(piece)
        for piece in _pieces(read, start, stop):
            body.add(piece)
            group.add(piece)
        if group.digest() != expected:
            raise LoadRefused(f"row group {number} is damaged: its bytes are not those of the digest in the footer")
        reached = stop
    for piece in _pieces(read, reached, body_bytes):
        body.add(piece)
    if body.digest() != stated.body:
        raise LoadRefused("it is damaged: its bytes are not those of the digest in its footer")


def _pieces(read: Read, start: int, stop: int) -> Iterator[bytes]:
    for begin in range(start, stop, PIECE_BYTES):
        yield read([(begin, min(begin + PIECE_BYTES, stop))])[0]
