"""rescheduling: pods leave nodes that are really busy while others are idle."""

from __future__ import annotations

import pytest

from hekla.engine.plugins.rescheduling import Rescheduling
from hekla.engine.policy import Policy, PolicyError
from hekla.engine.world import World, policy


def world(**params: dict[str, int]) -> World:
    strategies = [{"name": "lowNodeUtilization", "params": params}]
    arguments = {"interval": "5m", "metricsPeriod": "10m", "strategies": strategies}
    here = World(policy(plugins=["gang", {"name": "rescheduling", "arguments": arguments}], actions="shuffle"))
    here.nodes("busy", "idle", cpu=10)
    here.job("old", pods=4, min_available=0, cpu=2, on=["busy"] * 4)
    measure(here, busy=90, idle=5)
    here.run()
    return here


def measure(here: World, **percent: float) -> None:
    here.state.others["NodeUsage"] = {
        name: {"cpu_usage_avg_percent": {"10m": value}, "memory_usage_avg_percent": {"10m": 10.0}} for name, value in percent.items()
    }
    here.state.version += 1


LIMITS = {"thresholds": {"cpu": 20, "memory": 20}, "targetThresholds": {"cpu": 60, "memory": 80}}


def test_pods_leave_until_the_node_is_below_the_target() -> None:
    here = world(**LIMITS)
    here.now += 301
    decisions = here.run()
    assert len(decisions.evictions) == 2, "90 % less twice 20 %"
    assert {one.reason for one in decisions.evictions} == {"shuffle"}


def test_at_most_once_an_interval() -> None:
    here = world(**LIMITS)
    here.now += 299
    assert here.run().evictions == []
    here.now += 10
    assert len(here.run().evictions) == 2
    here.now += 10
    assert here.run().evictions == []


def test_nobody_moves_where_all_are_busy_or_all_are_idle() -> None:
    for load in ({"busy": 90, "idle": 90}, {"busy": 5, "idle": 5}):
        here = world(**LIMITS)
        measure(here, **load)
        here.now += 301
        assert here.run().evictions == []


def test_the_least_important_go_first_and_the_marked_stay() -> None:
    here = world(**LIMITS)
    here.pod("dear", node="busy", cpu=1, spec={"priority": 100}, job="old", annotations={"volcano.sh/task-priority": "-9"})
    here.pod("cheap", node="busy", cpu=3, spec={"priority": -5}, job="old")
    here.pod("marked", node="busy", cpu=1, spec={"priority": -9}, job="old", preemptable=False)
    here.now += 301
    assert [one.pod for one in here.run().evictions] == ["default/cheap", "default/old-task-0"], "60 % is not below the target"


def test_strategies_are_checked() -> None:
    def read(strategies: list) -> None:
        plugin = {"name": "rescheduling", "arguments": {"strategies": strategies}}
        Policy.parse({"actions": "shuffle", "tiers": [{"plugins": [plugin]}]})

    with pytest.raises(PolicyError, match="does not exist"):
        read([{"name": "highNodeUtilization"}])
    with pytest.raises(PolicyError, match="cpu = 120"):
        read([{"name": "lowNodeUtilization", "params": {"thresholds": {"cpu": 120}}}])


def test_an_interval_that_cannot_be_read_is_five_minutes_where_nothing_is_refused() -> None:
    tree = {"actions": "shuffle", "tiers": [{"plugins": [{"name": "rescheduling", "arguments": {"interval": "often"}}]}]}
    with pytest.raises(PolicyError, match="often"):
        Policy.parse(tree)
    (option,) = Policy.parse(tree, strict=False).tiers[0]
    plugin = option.plugin(option.arguments, option.flags)
    assert isinstance(plugin, Rescheduling)
    assert plugin.interval == 300
