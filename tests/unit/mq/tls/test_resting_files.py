"""When changed files are read again: once for each change, and not in the middle of one."""

from mq.tls.reload import Look, RestingFiles

OLD: Look = ((1, 1), (1, 2))
HALF: Look = ((1, 3), (1, 2))
NEW: Look = ((1, 3), (1, 4))
GONE: Look = (None, (1, 4))


def looks(*seen: Look) -> list[bool]:
    files = RestingFiles(OLD)
    return [files.are_new(each) for each in seen]


def test_nothing_changes() -> None:
    assert looks(OLD, OLD) == [False, False]


def test_a_change_is_told_once_when_it_rests() -> None:
    assert looks(OLD, NEW, NEW, NEW) == [False, False, True, False]


def test_between_two_files_nothing_is_read() -> None:
    assert looks(HALF, NEW, NEW) == [False, False, True]


def test_a_change_that_stays_half_is_told() -> None:
    assert looks(HALF, HALF, NEW, NEW) == [False, True, False, True]


def test_what_is_there_again_as_it_was_is_no_change() -> None:
    assert looks(NEW, OLD, OLD) == [False, False, False]


def test_files_that_go_are_told_too() -> None:
    assert looks(GONE, GONE) == [False, True]
