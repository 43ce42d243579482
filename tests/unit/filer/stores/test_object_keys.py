import pytest

from filer.errors import StoreRefused
from filer.stores.object_keys import check_folder, check_key, check_prefix

GOOD_KEYS = ["a", "a/b", "a.b/c.d", "segment=1/x", "ü/日本", "a b", "a\n", "a..", "-", "a" * 2000]
BAD_KEYS = ["", "/", "/a", "a/", "a//b", ".", "..", ".a", "a/.b", "a/../b", "\0", "a/b\0", "\udcff"]


@pytest.mark.parametrize("key", GOOD_KEYS)
def test_good_key_is_taken_as_it_is(key: str) -> None:
    assert check_key(key) == key
    assert check_prefix(key) == key
    assert check_folder(f"{key}/") == f"{key}/"


@pytest.mark.parametrize("key", BAD_KEYS)
def test_bad_key_is_refused_with_the_rule(key: str) -> None:
    with pytest.raises(StoreRefused, match="parts separated by single '/'"):
        check_key(key)


def test_long_bad_key_is_cut_short_in_the_message() -> None:
    with pytest.raises(StoreRefused) as raised:
        check_key("/" * 100_000)
    assert len(str(raised.value)) < 500


@pytest.mark.parametrize("prefix", ["/", "a//", "..", "a/../", ".", "a/.", "\0"])
def test_bad_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(StoreRefused):
        check_prefix(prefix)


def test_empty_prefix_is_everything() -> None:
    assert check_prefix("") == ""
    assert check_folder("") == ""


def test_folder_must_end_in_slash() -> None:
    with pytest.raises(StoreRefused, match="must end in '/'"):
        check_folder("a/b")
