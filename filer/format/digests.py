"""The digests in the footer of a segment file: filling them in as a file is written, and checking bytes against them.

The body's digest covers everything before the footer, one digest per row group the bytes of that row group, and the
footer's digest the whole footer. So every byte of a file is covered. A footer's digest is computed with its own 32
digits as zeros. `previous` is the footer's digest of the file before it in the segment's log: the chain of a segment
also shows that no file was exchanged.

All are XXH3-128, as 32 hexadecimal digits (docs/decisions/0017-digests-are-xxh3-128.md). A file without any of them was
written by an earlier version, and is read unchecked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

import xxhash

from filer.errors import CorruptFile
from filer.varint import varint

Bytes: TypeAlias = "bytes | bytearray | memoryview"

MAGIC = b"PAR1"
PIECE_BYTES = 8 * 1024 * 1024
"""How much is read at once of bytes that are only hashed."""
BODY, ROW_GROUPS, FOOTER = "braidmq.body_digest", "braidmq.row_group_digests", "braidmq.footer_digest"
PREVIOUS, LAST_ORIGINAL = "braidmq.previous", "braidmq.last_original"
DIGITS = 32
NO_DIGEST = "0" * DIGITS
"""A footer's own digest before it is known."""
NAMES = (BODY, ROW_GROUPS, FOOTER, PREVIOUS)
"""The metadata that every file has since version 0.2; files of earlier versions have none of it."""
_STRING = b"\x18"
"""The type of a field that is the next one of its struct and a string, in Thrift's compact protocol."""


@dataclass(frozen=True, slots=True)
class FileDigests:
    """The digests that a footer states. That of the footer itself has been checked."""

    body: str
    row_groups: tuple[str, ...]
    footer: str


def digest_of(data: Bytes) -> str:
    """The XXH3-128 of some bytes, as hexadecimal digits."""
    return xxhash.xxh3_128_hexdigest(data)


class Hasher:
    """The XXH3-128 of bytes that come in pieces."""

    def __init__(self) -> None:
        self._state = xxhash.xxh3_128()

    def add(self, data: Bytes) -> None:
        """Take the next bytes."""
        self._state.update(data)

    def digest(self) -> str:
        """The digest of all bytes so far, as hexadecimal digits."""
        return self._state.hexdigest()


def place_holders(previous: str, *, row_groups: int) -> dict[str, str]:
    """Metadata for the footer of a file with so many row groups, with zeros that `fill_in` replaces."""
    return {PREVIOUS: previous, BODY: NO_DIGEST, ROW_GROUPS: NO_DIGEST * row_groups, FOOTER: NO_DIGEST}


def fill_in(data: memoryview, ends: Sequence[int]) -> None:
    """Replace the place holders in a whole file by its digests.

    `ends` are the positions between row groups: the begin of the first one, the end of each. The strings of the footer
    keep their lengths, so it remains valid.
    """
    data = data.cast("B")
    begin = len(data) - footer_size_bytes(data[-8:])
    row_groups = "".join(digest_of(data[start:stop]) for start, stop in pairwise(ends))
    footer = bytearray(data[begin:])
    for mark, digits in ((_BODY_MARK, digest_of(data[:begin])), (_row_groups_mark(len(row_groups)), row_groups)):
        _write_behind(mark, digits, footer)
    _write_behind(_FOOTER_MARK, digest_of(footer), footer)
    data[begin:] = footer


def with_footer_digest(footer: bytes) -> tuple[bytes, str]:
    """A footer that has all other digests, with its own in place of `NO_DIGEST`; and that digest."""
    digest = digest_of(footer)
    at = footer.index(_FOOTER_MARK) + len(_FOOTER_MARK)
    return b"".join((footer[:at], digest.encode(), footer[at + DIGITS :])), digest


def _write_behind(mark: bytes, digits: str, footer: bytearray) -> None:
    at = footer.index(mark) + len(mark)
    footer[at : at + len(digits)] = digits.encode()


def footer_size_bytes(tail: Bytes) -> int:
    """The size of the footer at the end of a file, its length and the magic included; raises `CorruptFile`."""
    if len(tail) < 8 or tail[-4:] != MAGIC:
        raise CorruptFile("not a whole Parquet file: it does not end in PAR1")
    return int.from_bytes(tail[-8:-4], "little") + 8


def check_footer(footer: bytes) -> str | None:
    """The digest of a footer, given from its first byte to the end of the file; None if the footer states none.

    Raises `CorruptFile` if the bytes are not what the digest says. This needs no parser, so that a parser never sees a
    damaged footer.
    """
    before, mark, after = footer.partition(_FOOTER_MARK)
    if not mark:
        return None
    stated, rest = after[:DIGITS], after[DIGITS:]
    if _FOOTER_MARK in rest or digest_of(b"".join((before, mark, NO_DIGEST.encode(), rest))).encode() != stated:
        raise CorruptFile("its footer is damaged: the bytes are not those of its digest")
    return stated.decode()


def stated_footer_digest(data: Bytes) -> str:
    """The digest in the footer of a file that was just written."""
    footer = bytes(data[-footer_size_bytes(data[-8:]) :])
    return footer.partition(_FOOTER_MARK)[2][:DIGITS].decode()


def digests_from_metadata(metadata: Mapping[bytes, str], checked: str | None) -> FileDigests | None:
    """The digests of a footer for which `check_footer` gave `checked`; None for a file of an earlier version.

    Raises `CorruptFile` if only some are there: then a name was damaged, and it shows no more which bytes are checked.
    """
    stated = {name: metadata.get(name.encode()) for name in NAMES}
    if checked is None and all(value is None for value in stated.values()):
        return None
    body, row_groups = stated[BODY], stated[ROW_GROUPS]
    if checked is None or stated[FOOTER] != checked or body is None or row_groups is None or stated[PREVIOUS] is None:
        raise CorruptFile("its footer is damaged: it has some digests, and lacks others")
    each = tuple(row_groups[at : at + DIGITS] for at in range(0, len(row_groups), DIGITS))
    return FileDigests(body, each, checked)


def check_body(data: Bytes, digests: FileDigests) -> None:
    """Raises `CorruptFile` if the body of a whole file is not what the footer's digest says."""
    body = memoryview(data)[: len(data) - footer_size_bytes(data[-8:])]
    if digest_of(body) != digests.body:
        raise CorruptFile("it is damaged: its bytes are not those of the digest in its footer")


def check_row_group(data: Bytes, digests: FileDigests, number: int) -> None:
    """Raises `CorruptFile` if the bytes of a row group are not what the footer's digest says."""
    if number >= len(digests.row_groups) or digest_of(data) != digests.row_groups[number]:
        raise CorruptFile(f"row group {number} is damaged: its bytes are not those of the digest in the footer")


def _entry(name: str, value: str) -> bytes:
    """A pair of key-value metadata in a footer. The name is a string field, the value the next one."""
    return b"".join((_STRING, varint(len(name)), name.encode(), _STRING, varint(len(value)), value.encode()))


_BODY_MARK = _entry(BODY, NO_DIGEST)[:-DIGITS]
_FOOTER_MARK = _entry(FOOTER, NO_DIGEST)[:-DIGITS]


@lru_cache(maxsize=64)
def _row_groups_mark(size: int) -> bytes:
    """What precedes the digests of row groups, which have so many digits together."""
    entry = _entry(ROW_GROUPS, "0" * size)
    return entry[: len(entry) - size]
