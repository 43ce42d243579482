"""What a cache holds, by its bytes."""

from filer.segment.sized_cache import SizedCache


def test_those_not_used_for_longest_go_first() -> None:
    cache: SizedCache[str, int] = SizedCache(10)
    cache.put("a", 1, 4)
    cache.put("b", 2, 4)
    assert cache.get("a") == 1
    cache.put("c", 3, 4)
    assert [cache.get(key) for key in "abc"] == [1, None, 3]
    cache.put("d", 4, 10)
    assert [cache.get(key) for key in "acd"] == [None, None, 4]


def test_what_is_too_large_is_not_held_and_drops_nothing() -> None:
    cache: SizedCache[str, int] = SizedCache(10)
    cache.put("a", 1, 10)
    cache.put("b", 2, 11)
    assert cache.get("a") == 1 and cache.get("b") is None


def test_the_first_value_stays() -> None:
    cache: SizedCache[str, int] = SizedCache(10)
    cache.put("a", 1, 4)
    cache.put("a", 2, 9)
    cache.put("b", 3, 6)
    assert cache.get("a") == 1 and cache.get("b") == 3


def test_a_lower_limit_drops_at_once_and_a_higher_one_is_that_of_the_beginning() -> None:
    cache: SizedCache[str, int] = SizedCache(10)
    cache.put("a", 1, 5)
    cache.put("b", 2, 5)
    cache.limit(5)
    assert cache.get("a") is None and cache.get("b") == 2
    cache.limit(-1)
    assert cache.get("b") is None
    cache.limit(100)
    cache.put("c", 3, 11)
    cache.put("d", 4, 10)
    assert cache.get("c") is None and cache.get("d") == 4
