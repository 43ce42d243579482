"""What checksums cost: encoding segment files and reading them, with and without, in one run.

    python bench/digests.py [--rounds 40]

With and without take turns, and the figure is the median of the pairs' processor times, so that what else the
machine does matters little. Files are made and read in memory.
"""

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from filer.format.schema import TIMESTAMP, MessageSchema
from filer.format.segment_file import Footer, SegmentFileEncoder, decode, decode_row_group, read_end, read_footer

SCHEMA = MessageSchema.of().log


@dataclass(frozen=True, slots=True)
class Case:
    """A file: so many messages of so many random bytes."""

    what: str
    messages: int
    value_bytes: int
    repeats: int = 1


CASES = (
    Case("8 MB, messages of 1 KiB", 8000, 1024),
    Case("8 MB, messages of 100 B", 80_000, 100),
    Case("one message of 100 B", 1, 100, repeats=50),
)


def rows_of(case: Case) -> pa.Table:
    """The messages, with a thousand keys."""
    count, noise = case.messages, random.Random(1).randbytes(case.messages * case.value_bytes)
    offsets = np.arange(0, (count + 1) * case.value_bytes, case.value_bytes, dtype=np.int32)
    value = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(noise)])
    columns = {
        "_offset": pa.array(np.arange(count)),
        "_timestamp": pa.array(np.full(count, 1_700_000_000_000_000)).cast(TIMESTAMP),
        "key": pa.array([b"key-%d" % (n % 1000) for n in range(count)], pa.binary()),
        "value": value,
    }
    nulls = {field.name: pa.nulls(count, field.type) for field in SCHEMA if field.name not in columns}
    return pa.table({**columns, **nulls}, schema=SCHEMA)


def encode(table: pa.Table, *, checks: bool) -> memoryview:
    encoder = SegmentFileEncoder(SCHEMA, compression="lz4", checks=checks)
    encoder.add_row_group(table)
    footer = Footer(0, 0, table.num_rows, "broker/01M7YRGHXTF8BA0MZVE2CAXCTB", 1, 2, previous="0" * 32)
    return memoryview(encoder.finish(footer))


def read_row_group(data: bytes) -> pa.Table:
    end = read_end(data, len(data))
    return decode_row_group(end, 0, data[slice(*end.row_group_range(0))])


def seconds_of(work: Callable[[], object], repeats: int) -> float:
    began = time.process_time()
    for _ in range(repeats):
        work()
    return (time.process_time() - began) / repeats


def compared(without: Callable[[], object], with_checks: Callable[[], object], rounds: int, repeats: int) -> list[str]:
    """The cells: milliseconds without, with, and the median of the ratios."""
    pairs = []
    for number in range(rounds + 1):
        if number % 2:
            first = seconds_of(without, repeats)
            pairs.append((first, seconds_of(with_checks, repeats)))
        else:
            last = seconds_of(with_checks, repeats)
            pairs.append((seconds_of(without, repeats), last))
    del pairs[0]
    medians = [statistics.median(side) * 1000 for side in zip(*pairs, strict=True)]
    ratio = statistics.median(after / before for before, after in pairs)
    return [f"{medians[0]:.3f} ms", f"{medians[1]:.3f} ms", f"{ratio:.2f}"]


def add_lines(table: Table, case: Case, rounds: int) -> None:
    """Measure a case."""
    rows = rows_of(case)
    old, new = bytes(encode(rows, checks=False)), bytes(encode(rows, checks=True))
    for what, without, with_checks in (
        ("encode", lambda: encode(rows, checks=False), lambda: encode(rows, checks=True)),
        ("read whole", lambda: decode(old), lambda: decode(new)),
        ("read the row group", lambda: read_row_group(old), lambda: read_row_group(new)),
        ("read the footer", lambda: read_footer(old), lambda: read_footer(new)),
    ):
        table.add_row(case.what, what, *compared(without, with_checks, rounds, case.repeats))
    table.add_row(case.what, "size", f"{len(old):,} B", f"{len(new):,} B", f"{len(new) / len(old):.2f}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What checksums cost a segment file.")
    parser.add_argument("--rounds", type=int, default=40, help="pairs that count for each line (40)")
    rounds = parser.parse_args().rounds
    pa.set_cpu_count(1)
    table = Table(title=f"medians of {rounds} pairs, processor time")
    for column in ("file", "what", "without", "with", "ratio"):
        table.add_column(column, justify="left" if column in ("file", "what") else "right")
    for case in CASES:
        add_lines(table, case, rounds)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
