"""Who comes next, also where the order changes meanwhile."""

from __future__ import annotations

import random

from hekla.engine.framework.heap import LiveHeap


def test_an_order_that_does_not_change_is_kept() -> None:
    given = random.Random(1).sample(range(1000), 200)
    heap = LiveHeap(lambda one, other: one < other, given)
    assert [heap.pop() for _ in range(len(heap))] == sorted(given)


def test_who_comes_next_is_settled_when_the_one_before_goes() -> None:
    held = {"a": 3, "b": 2}

    def key(one: str) -> tuple[int, bool, str]:
        return -held[one[0]], one[0] == "a", one

    heap = LiveHeap(lambda one, other: key(one) < key(other), ["b2", "a1", "b1", "a3", "a2"])
    gone = []
    while heap:
        gone.append(heap.pop())
        held[gone[-1][0]] -= 1
    assert gone == ["a1", "a2", "b1", "b2", "a3"]
