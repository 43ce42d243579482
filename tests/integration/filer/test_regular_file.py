"""What is no file is told by its name, and nothing stays open."""

import os
from pathlib import Path

import pytest

from filer.regular_file import read_regular_file


def test_a_folder_and_a_pipe_are_told_by_their_names(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(IsADirectoryError) as of_folder:
        read_regular_file(tmp_path, 10)
    with pytest.raises(OSError, match="no regular file") as of_pipe:
        read_regular_file(tmp_path / "pipe", 10)
    assert (of_folder.value.filename, of_pipe.value.filename) == (tmp_path, tmp_path / "pipe")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_first_bytes_of_a_file_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_regular_file(tmp_path / "file", 4) == b"0123"
