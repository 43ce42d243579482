"""What a policy's file may be."""

import re
from pathlib import Path

import pytest

from filer.errors import InvalidInput
from mq.cli.policy.policy_file import parse_policy_file, read_policy_file


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "it is a list"),
        ('{"grants": [', "no JSON"),
        ("grants = [", "neither TOML nor JSON"),
        ("[grants]\nprincipal = 'a'", "write [[grants]]"),
        ("[[quotas]]\nstreams = 99999999999999999999", "too large"),
        ('{"quotas": [{"streams": 99999999999999999999}]}', "too large"),
        ("[[grant]]\na = 1", "did you mean 'grants'"),
    ],
)
def test_what_is_wrong_is_told(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        parse_policy_file(text)


def test_what_show_prints_as_json_is_taken() -> None:
    assert parse_policy_file('{"version": 3, "etag": "x", "grants": []}') == {"version": 3, "grants": []}


def test_bytes_that_are_no_text_are_told_and_a_mark_of_windows_is_not(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="no text in UTF-8"):
        read_policy_file(str(path))
    path.write_bytes(b"\xef\xbb\xbfversion = 1")
    assert parse_policy_file(read_policy_file(str(path))) == {"version": 1}
