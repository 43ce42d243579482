import pytest

from filer.quantities import (
    DURATION_UNITS,
    SIZE_UNITS,
    duration_text,
    parse_duration_seconds,
    parse_size_bytes,
    size_text,
)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("268435456", 268_435_456),
        ("12B", 12),
        ("256MB", 256_000_000),
        ("256MiB", 256 * 1024 * 1024),
        ("64KiB", 65_536),
        ("64kb", 64_000),
        ("1gib", 1024**3),
        ("1.5 GiB", 3 * 2**29),
        (" 2TB ", 2 * 10**12),
    ],
)
def test_a_size(text: str, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "MB", "-1", "1e6", "256M", "256X", "1MB2", "1,000", "1MBit", "٣MB", "1 000", "nan"]
)
def test_what_is_no_size_is_told_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match=r"powers of 1000.*powers of 1024.*256MB"):
        parse_size_bytes(text)


def test_a_part_of_a_byte_is_no_size() -> None:
    with pytest.raises(ValueError, match="a whole number of bytes"):
        parse_size_bytes("1.0001kB")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("2.5", 2.5),
        ("1e3", 1000),
        ("100ms", 0.1),
        ("10s", 10),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5d", 129_600),
        ("2W", 1_209_600),
        ("1d 12h", 129_600),
    ],
)
def test_a_duration(text: str, seconds: float) -> None:
    assert parse_duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-5m", "5 minutes", "5min", "5M5", "inf", "nan", "5m5", "1y", "1e999"])
def test_what_is_no_duration_is_told_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match=r"ms, s, m, h, d or w, as in 10s or 1h30m"):
        parse_duration_seconds(text)


@pytest.mark.parametrize("size_bytes", [0, 1, 1023, 1024, 1000, 4096, 65_536, 268_435_456, 256_000_000, 5 * 1024**3, 7])
def test_a_size_is_read_as_it_was_written(size_bytes: int) -> None:
    assert parse_size_bytes(size_text(size_bytes)) == size_bytes
    assert all(size_text(unit_bytes) == f"1{unit}" for unit, unit_bytes in SIZE_UNITS.items() if unit_bytes > 1)


@pytest.mark.parametrize("seconds", [0, 0.1, 1, 10, 60, 90, 3600, 86_400, 600, 1e-3])
def test_a_duration_is_read_as_it_was_written(seconds: float) -> None:
    assert parse_duration_seconds(duration_text(seconds)) == seconds


def test_each_unit_has_one_meaning() -> None:
    assert len({name.lower() for name in SIZE_UNITS}) == len(SIZE_UNITS)
    assert len({name.lower() for name in DURATION_UNITS}) == len(DURATION_UNITS)
