"""Gathering lasts as the server is busy."""

from __future__ import annotations

from hekla.kube.flowcontrol.adaptive_debounce import QUIET, ROUNDS, AdaptiveDebounce


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def answers(debounce: AdaptiveDebounce, clock: Clock, count: int, seconds: float) -> None:
    for _ in range(count):
        debounce.observe(clock.now - seconds)


def test_a_quiet_server_lets_nothing_wait_longer_than_it_must() -> None:
    clock = Clock()
    debounce = AdaptiveDebounce(clock)
    assert debounce.delay(0.0, 2.0) == 0.0
    answers(debounce, clock, 100, QUIET / 2)
    assert (debounce.delay(0.0, 2.0), debounce.delay(0.35, 2.0)) == (0.0, 0.35)


def test_a_busy_server_is_given_time_but_not_without_end() -> None:
    clock = Clock()
    debounce = AdaptiveDebounce(clock)
    answers(debounce, clock, 100, 0.03)
    assert abs(debounce.delay(0.0, 2.0) - ROUNDS * 0.03) < 0.01
    answers(debounce, clock, 100, 1.0)
    assert debounce.delay(0.35, 2.0) == 2.0
    assert debounce.delay(3.0, 2.0) == 3.0


def test_one_slow_answer_is_no_trouble_and_trouble_is_forgotten() -> None:
    clock = Clock()
    debounce = AdaptiveDebounce(clock)
    answers(debounce, clock, 1, 0.1)
    assert debounce.delay(0.0, 2.0) == 0.0
    answers(debounce, clock, 100, 0.1)
    assert debounce.delay(0.0, 2.0) == 2.0
    clock.now += 5
    assert debounce.delay(0.0, 2.0) == 0.0
