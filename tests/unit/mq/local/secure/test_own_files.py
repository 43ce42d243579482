"""What another user may have placed is not used: decided by owner, mode and kind."""

import stat

import pytest

from mq.local.secure.own_files import why_not_own


@pytest.mark.parametrize(
    ("mode", "owner", "wrong"),
    [
        (stat.S_IFREG | 0o600, 7, None),
        (stat.S_IFDIR | 0o755, 7, None),
        (stat.S_IFREG | 0o600, 8, "belongs to user 8 and not to you, who are user 7: take a folder"),
        (stat.S_IFREG | 0o600, 0, "belongs to user 0"),
        (stat.S_IFREG | 0o620, 7, "may be written by others, with its mode 0620: chmod go-w"),
        (stat.S_IFDIR | 0o702, 7, "may be written by others, with its mode 0702"),
        (stat.S_IFDIR | 0o1777, 7, "may be written by others, with its mode 1777"),
        (stat.S_IFLNK | 0o777, 7, "is a link"),
        (stat.S_IFLNK | 0o700, 8, "is a link"),
    ],
)
def test_what_is_ones_own_is_written_by_nobody_else(mode: int, owner: int, wrong: str | None) -> None:
    found = why_not_own(mode, owner, 7)
    assert found is None if wrong is None else found is not None and found.startswith(wrong)
