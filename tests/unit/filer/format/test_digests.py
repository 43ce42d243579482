"""The digests of a segment file: what they cover, what is noticed, what they cost a reader of files without them."""

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from filer.errors import CorruptFile
from filer.format.checked_file import CheckedFile
from filer.format.digests import DIGITS, FOOTER
from filer.format.requests import Position, RequestId, StoredRequest
from filer.format.segment_file import (
    Footer,
    SegmentFileEncoder,
    decode,
    decode_row_group,
    encode,
    read_end,
    read_footer,
)
from filer.segment.segment_log import SegmentRef
from tests.support.thoroughness import few_or_many
from tests.support.topic.damage import damaged, with_bit_flipped
from tests.support.topic.segment_files import rows

REF = SegmentRef("t", 3)
REQUESTS = (StoredRequest(RequestId("till", 41), Position(3, 0, 1)),)


def owners_file(count: int = 20, **facts: object) -> bytes:
    return encode(rows(REF, 0, count), Footer(3, 0, count, "b/1", 1, 2, **facts)).to_pybytes()


def rolled_up(*, checks: bool = True, each: int = 10, groups: int = 3) -> bytes:
    encoder = SegmentFileEncoder(REF.schema.log, compression="zstd", checks=checks)
    for group in range(groups):
        encoder.add_row_group(rows(REF, group * each, each))
    footer = Footer(3, 0, each * groups, "b/1", 1, 2, previous="a" * DIGITS, last_original="b" * DIGITS)
    return encoder.finish(footer).to_pybytes()


def an_empty_seal() -> bytes:
    footer = Footer(3, 0, 0, "b/1", 0, 0, sealed=True, windows=b"w" * 300)
    return encode(REF.schema.log.empty_table(), footer).to_pybytes()


KINDS = {
    "owner's file": owners_file(),
    "owner's file with requests": owners_file(requests=REQUESTS, previous="c" * DIGITS),
    "roll-up": rolled_up(),
    "seal": an_empty_seal(),
    "seal with messages": owners_file(sealed=True, windows=b"w" * 50),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_of_a_file_is_covered(kind: str) -> None:
    data = KINDS[kind]
    assert decode(data).num_rows == read_footer(data).count
    for name, bad in damaged(data):
        with pytest.raises(CorruptFile):
            decode(bad)
            raise AssertionError(f"{name} was not noticed")


@settings(max_examples=few_or_many(100, 300), deadline=None)
@given(kind=st.sampled_from(sorted(KINDS)), bits=st.sets(st.integers(0, 1 << 20), min_size=1, max_size=4))
def test_any_bits_are_noticed(kind: str, bits: set[int]) -> None:
    data = KINDS[kind]
    bad = data
    for bit in {bit % (len(data) * 8) for bit in bits}:
        bad = with_bit_flipped(bad, bit)
    with pytest.raises(CorruptFile):
        decode(bad)


def test_row_groups_are_checked_one_by_one() -> None:
    """Damage to one row group is noticed by those who read that one, and by nobody else."""
    data = rolled_up()
    end = read_end(data, len(data))
    for group in range(3):
        start, stop = end.row_group_range(group)
        whole = decode_row_group(end, group, data[start:stop])
        assert whole["_offset"].to_pylist() == list(range(group * 10, group * 10 + 10))
        for _, bad in damaged(data[start:stop]):
            with pytest.raises(CorruptFile, match=f"row group {group} is damaged"):
                decode_row_group(end, group, bad)


def test_row_groups_of_another_place_are_noticed() -> None:
    data = rolled_up()
    end = read_end(data, len(data))
    with pytest.raises(CorruptFile):
        decode_row_group(end, 0, data[slice(*end.row_group_range(1))])


def test_a_file_that_is_read_by_ranges_is_checked() -> None:
    data = rolled_up()

    def offsets(data: bytes) -> list[int]:
        file = CheckedFile(lambda start, stop: data[start:stop], len(data))
        groups = range(file.end.metadata.num_row_groups)
        return [offset for group in groups for batch in file.batches(group, most_rows=7, columns=["_offset"])
                for offset in batch["_offset"].to_pylist()]  # fmt: skip

    assert offsets(data) == list(range(30))
    # The first four bytes, the magic, are in no row group.
    for name, bad in damaged(data):
        if name not in {f"bit {bit}" for bit in range(32)}:
            with pytest.raises(CorruptFile):
                offsets(bad)


def test_a_footer_that_is_longer_than_what_is_read_at_first() -> None:
    many = tuple(StoredRequest(RequestId(f"p{n:06}", n), Position(3, n % 20, 1)) for n in range(9000))
    data = owners_file(requests=many)
    reads: list[tuple[int, int]] = []

    def read(start: int, stop: int) -> bytes:
        reads.append((start, stop))
        return data[start:stop]

    assert CheckedFile(read, len(data)).end.footer.requests == many
    assert len(reads) == 2


def test_what_the_footer_states_is_what_anybody_computes() -> None:
    """By pyarrow and xxhash alone, as docs/file-format.md says."""
    data = rolled_up()
    footer_bytes = int.from_bytes(data[-8:-4], "little") + 8
    metadata = pq.read_metadata(pa.BufferReader(data))
    stated = metadata.metadata
    assert xxhash.xxh3_128_hexdigest(data[:-footer_bytes]) == stated[b"braidmq.body_digest"].decode()
    own = stated[FOOTER.encode()]
    assert xxhash.xxh3_128_hexdigest(data[-footer_bytes:].replace(own, b"0" * 32)) == own.decode()
    groups = stated[b"braidmq.row_group_digests"].decode()
    for number in range(3):
        start, stop = read_end(data, len(data)).row_group_range(number)
        assert groups[number * 32 : number * 32 + 32] == xxhash.xxh3_128_hexdigest(data[start:stop])


def test_links_of_the_chain() -> None:
    first = read_footer(owners_file())
    assert (first.previous, first.last_original) == ("", None)
    assert first.digests is not None and first.link == first.digests.footer
    rolled = read_footer(rolled_up())
    assert (rolled.previous, rolled.link) == ("a" * DIGITS, "b" * DIGITS)


def test_files_without_digests_are_read_as_before() -> None:
    data = rolled_up(checks=False)
    footer = read_footer(data)
    assert footer.digests is None
    assert decode(data).equals(decode(rolled_up()))


def test_a_footer_with_some_digests_is_not_taken_for_one_without() -> None:
    """Whoever loses the name of one digest to a flipped bit has the others."""
    data = owners_file()
    for name in (b"braidmq.footer_digest", b"braidmq.body_digest", b"braidmq.previous", b"braidmq.row_group_digests"):
        at = data.rindex(name)
        for bit in range(len(name) * 8):
            with pytest.raises(CorruptFile):
                read_footer(with_bit_flipped(data, at * 8 + bit))


def test_a_producer_cannot_forge_the_place_of_the_digest() -> None:
    """Its name is in the footer, but escaped."""
    mark = "\x18\x15braidmq.footer_digest\x18\x20" + "0" * 32
    request = StoredRequest(RequestId(mark, 1), Position(3, 0, 1))
    assert read_footer(owners_file(requests=(request,))).requests == (request,)


def test_the_same_rows_give_the_same_bytes() -> None:
    assert owners_file() == owners_file()
    assert rolled_up() == rolled_up()


@pytest.mark.parametrize("groups", [1, 2, 200])
def test_any_number_of_row_groups(groups: int) -> None:
    data = rolled_up(each=2, groups=groups)
    end = read_end(data, len(data))
    assert end.footer.digests is not None and len(end.footer.digests.row_groups) == groups
    chosen = random.Random(groups).randrange(groups)
    table = decode_row_group(end, chosen, data[slice(*end.row_group_range(chosen))])
    assert table["_offset"].to_pylist() == [2 * chosen, 2 * chosen + 1]
    assert decode(data).num_rows == 2 * groups
