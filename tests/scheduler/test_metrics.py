"""The gauges of plugins show what the last cycle said, and nothing of what it no longer names."""

from __future__ import annotations

from prometheus_client import REGISTRY

from hekla.scheduler.metrics import PREFIX, PluginMetrics


def shown(name: str, queue: str) -> float | None:
    return REGISTRY.get_sample_value(PREFIX + name, {"queue_name": queue})


def test_a_series_follows_the_cycles_and_goes_when_it_is_no_longer_named() -> None:
    metrics = PluginMetrics()
    name = "test_queue_share"
    metrics.take([(name, (("queue_name", "a"),), 0.5), (name, (("queue_name", "b"),), 1.0)])
    metrics.take([(name, (("queue_name", "a"),), 0.75), (name, (("queue_name", "b"),), 1.0)])
    assert (shown(name, "a"), shown(name, "b")) == (0.75, 1.0)
    metrics.take([])
    assert shown(name, "a") == 0.75, "a cycle that says nothing of a gauge leaves it"
    metrics.take([(name, (("queue_name", "b"),), 0.0)])
    assert (shown(name, "a"), shown(name, "b")) == (None, 0.0)


def test_a_counter_adds_up() -> None:
    metrics = PluginMetrics()
    for _ in range(2):
        metrics.take([("total_preemption_attempts", (), 2.0)])
    assert REGISTRY.get_sample_value(PREFIX + "total_preemption_attempts_total") == 4.0
