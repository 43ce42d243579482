"""When messages may be handed out, by their headers."""

import pyarrow as pa

from filer.format.headers import DELIVER_AT, EXPIRES_AT
from filer.format.schema import HEADERS
from filer.times import rfc3339
from groups.queue.message_times import Timed, timed_rows

NOW_MS = 1_700_000_000_000


def at(offset_ms: int) -> bytes:
    return rfc3339((NOW_MS + offset_ms) * 1000).encode()


def column(*rows: list[tuple[str, bytes]] | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([row], HEADERS) for row in rows], HEADERS)


def test_most_messages_have_no_times() -> None:
    assert timed_rows(column(None, None), NOW_MS) == []
    assert timed_rows(column(None, [("colour", b"red")]), NOW_MS) == []
    assert timed_rows(pa.chunked_array([], HEADERS), NOW_MS) == []


def test_delays_are_rounded_up_to_a_tenth_of_a_second() -> None:
    rows = column(None, [(DELIVER_AT, at(1))], [(DELIVER_AT, at(100))], [(DELIVER_AT, at(0))], [(DELIVER_AT, at(-5))])
    assert timed_rows(rows, NOW_MS) == [Timed(1, NOW_MS + 100), Timed(2, NOW_MS + 100)]


def test_what_has_expired_is_never_due() -> None:
    rows = column([(EXPIRES_AT, at(-1)), (DELIVER_AT, at(5))], [(EXPIRES_AT, at(0))], [(EXPIRES_AT, at(1))])
    assert timed_rows(rows, NOW_MS) == [Timed(0, None), Timed(1, None)]


def test_what_is_no_time_is_passed_by() -> None:
    assert (
        timed_rows(column([(DELIVER_AT, b"soon")], [(EXPIRES_AT, b"\xff")], [(DELIVER_AT, b"2024-01-01")]), NOW_MS)
        == []
    )


def test_reserved_names_are_the_same_in_upper_case() -> None:
    rows = column([("Braid-Deliver-At", at(100))], [("BRAID-EXPIRES-AT", at(-1))])
    assert timed_rows(rows, NOW_MS) == [Timed(0, NOW_MS + 100), Timed(1, None)]
