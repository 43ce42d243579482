"""Files of secrets that others may read: as ssh decides, and told in one line."""

import logging
from pathlib import Path

import pytest

from filer.errors import InvalidInput
from mq.base.private_file import how_open, is_open_to_others, refuse_if_open, tell_if_open


@pytest.mark.parametrize(
    ("mode", "owner", "is_open"),
    [(0o600, 7, False), (0o400, 7, False), (0o644, 7, True), (0o640, 7, True), (0o620, 7, True), (0o644, 0, False)],
)
def test_a_file_of_ones_own_is_for_nobody_else(mode: int, owner: int, is_open: bool) -> None:
    assert is_open_to_others(0o100000 | mode, owner, 7) is is_open


def test_it_is_refused_or_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "peer-keys"
    assert how_open(file) is None
    file.touch(mode=0o600)
    refuse_if_open(file)
    tell_if_open(file)
    assert caplog.text == ""
    file.chmod(0o640)
    with pytest.raises(InvalidInput, match=r"others may read .*peer-keys', whose mode is 0640: chmod 600"):
        refuse_if_open(file)
    with caplog.at_level(logging.WARNING):
        tell_if_open(file)
    assert caplog.text.count("secret_file_open") == 1
