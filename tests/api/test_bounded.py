"""The cache of bounded size."""

from hekla.api.bounded import BoundedCache


def test_a_full_cache_begins_anew() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache["a"], cache["b"] = 1, 2
    assert cache == {"a": 1, "b": 2}
    cache["c"] = 3
    assert cache == {"c": 3}


def test_an_entry_that_is_there_is_written_again_without_a_loss() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    cache["a"], cache["b"] = 1, 2
    cache["a"] = 3
    assert cache == {"a": 3, "b": 2}
    assert cache.setdefault("b", 4) == 2 and cache == {"a": 3, "b": 2}
    assert cache.setdefault("c", 5) == 5 and cache == {"c": 5}
