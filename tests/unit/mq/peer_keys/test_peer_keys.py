"""The file of the keys by which brokers prove to each other who they are."""

import pytest

from filer.clock import ManualClock
from filer.errors import InvalidInput
from mq.peer_keys.peer_keys import MOST_BYTES, MOST_KEYS, PeerKeys, new_key, parse_peer_keys

SECRET = "ab" * 32


def test_a_file_is_read_as_it_was_written() -> None:
    clock = ManualClock()
    keys = PeerKeys((new_key(clock), new_key(clock)))
    assert parse_peer_keys(keys.text().encode()) == keys
    assert keys.find(keys.ids[1]) == keys.keys[1]
    assert keys.find("other") is None


def test_remarks_and_empty_lines_are_for_people() -> None:
    assert parse_peer_keys(f"# since May\n\nnew {SECRET}\r\n old   {'cd' * 32}".encode()).ids == ("new", "old")


def test_no_text_of_a_key_has_its_secret() -> None:
    key = parse_peer_keys(f"k {SECRET}".encode())
    assert SECRET not in repr(key)
    assert repr(bytes.fromhex(SECRET)) not in repr(key)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "it has no key"),
        (b"# nothing\n", "it has no key"),
        (b"\xff", "it is no text of peer keys"),
        (f"k {SECRET}\nk {SECRET}".encode(), "two keys have the id 'k'"),
        (b"k short", "line 1 is not an id and a secret of 64 hexadecimal digits"),
        (f"k {SECRET} more".encode(), "line 1 is not"),
        (f"a\nk: {SECRET}".encode(), "line 1 is not"),
        (f"{'k' * 65} {SECRET}".encode(), "line 1 is not"),
        (f"k {SECRET.upper()}".encode(), "line 1 is not"),
        (b"#" * (MOST_BYTES + 1), "it has more than 8192 bytes"),
        ("".join(f"k{n} {SECRET}\n" for n in range(MOST_KEYS + 1)).encode(), "it has 21 keys: 20 are the most"),
    ],
)
def test_what_is_no_file_of_keys_is_told_without_its_secrets(text: bytes, why: str) -> None:
    with pytest.raises(InvalidInput, match=why) as caught:
        parse_peer_keys(text)
    assert "abab" not in str(caught.value).lower()
