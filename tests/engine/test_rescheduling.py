"""rescheduling: pods leave nodes that are really busy while others are idle."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.policy import PolicyError
from hekla.engine.model.tasks import Status
from hekla.engine.plugins.fairness.rescheduling import Rescheduling
from hekla.engine.policies import read_policy
from hekla.engine.world import World, policy


def world(**params: dict[str, int]) -> World:
    strategies = [{"name": "lowNodeUtilization", "params": params}]
    arguments = {"interval": "5m", "metricsPeriod": "10m", "strategies": strategies}
    here = World(
        policy(
            plugins=["gang", "usage", {"name": "rescheduling", "arguments": arguments}],
            actions="shuffle",
        )
    )
    here.nodes("busy", "idle", cpu=10)
    here.job("old", pods=4, min_available=0, cpu=2, on=["busy"] * 4)
    measure(here, busy=90, idle=5)
    here.run()
    return here


def measure(here: World, **percent: float) -> None:
    here.state.others["NodeUsage"] = {
        name: {
            "cpu_usage_avg_percent": {"10m": value},
            "memory_usage_avg_percent": {"10m": 10.0},
            "metrics_age_seconds": 0,
        }
        for name, value in percent.items()
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
    here.pod(
        "dear",
        node="busy",
        cpu=1,
        spec={"priority": 100},
        job="old",
        annotations={"volcano.sh/task-priority": "-9"},
    )
    here.pod("cheap", node="busy", cpu=3, spec={"priority": -5}, job="old")
    here.pod("marked", node="busy", cpu=1, spec={"priority": -9}, job="old", preemptable=False)
    here.now += 301
    assert [one.pod for one in here.run().evictions] == ["default/cheap", "default/old-task-0"], (
        "60 % is not below the target"
    )


PAGE = Path(__file__).parents[2] / "docs" / "scheduler" / "rescheduling.md"


def of_the_page(plugins: Sequence[str] = ()) -> World:
    """The page's policy, less what is not among `plugins` where they are named: two nodes, the
    first of them busy with six pods."""
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    tree = yaml.safe_load(block)
    for tier in tree["tiers"]:
        tier["plugins"] = [one for one in tier["plugins"] if not plugins or one["name"] in plugins]
    here = World(read_policy(tree))
    here.nodes("hot", "cool", cpu=16)
    here.job("six", pods=6, min_available=0, cpu=2, on=["hot"] * 6, phase="Running")
    measure(here, hot=90, cool=5)
    here.run()
    return here


def rounds(here: World, count: int = 8, seconds: float = 601) -> list[tuple[str, ...]]:
    """Who is evicted, cycle by cycle; all come back, and the averages have not moved yet."""
    told = []
    for _ in range(count):
        here.now += seconds
        for more in (0, 1, 1):
            here.now += more
            told.append(tuple(one.pod for one in here.run().evictions))
            here.settle(coming_back=True)
    return told


def on(here: World, node: str) -> int:
    return sum(1 for pod in here.pods.values() if pod["spec"]["nodeName"] == node)


def test_the_example_of_the_page_moves_pods_for_good() -> None:
    here = of_the_page()
    gone = [pod for one in rounds(here) for pod in one]
    assert gone, "somebody moves"
    assert len(gone) == len(set(gone)), "nobody twice"
    assert on(here, "cool") == len(gone), "and not back"


def test_nobody_is_evicted_who_would_come_back_to_the_same_node() -> None:
    """Without a plugin that looks at real usage the first node with room is taken, which is the
    busy one."""
    here = of_the_page(["gang", "predicates", "rescheduling"])
    assert not any(rounds(here))
    assert on(here, "hot") == 6


def test_nobody_moves_from_one_busy_node_to_another() -> None:
    here = of_the_page(["gang", "predicates", "rescheduling"])
    here.nodes("hot", cpu=16, unschedulable=True)  # else the first of equals, their own, is chosen
    here.nodes("also-hot", cpu=16)
    here.nodes("cool", cpu=1)
    measure(here, **{"hot": 90, "also-hot": 88, "cool": 5})
    assert not any(rounds(here))


def test_nobody_moves_to_a_node_that_would_be_busy_by_it() -> None:
    here = of_the_page()
    here.nodes("cool", cpu=3)  # Two cpus of three are more than the target's 60 %.
    assert not any(rounds(here))


def test_who_makes_every_node_busy_stays_in_the_end_and_is_told() -> None:
    """The pods use more than they ask for, so that wherever they are their node is busy."""
    here = of_the_page()

    def one_round() -> tuple[list[str], list[str]]:
        """Who is evicted and what is told, until all are back; then the averages have moved."""
        told, gone = [], []
        here.now += 601
        for _ in range(3):
            here.now += 1
            decisions = here.run()
            gone += [one.pod for one in decisions.evictions]
            told += [one.message for one in decisions.events if one.reason == "EvictionHeldBack"]
            here.settle(coming_back=True)
        busier = max(("hot", "cool"), key=lambda node: on(here, node))
        measure(here, **{node: 90 if node == busier else 5 for node in ("hot", "cool")})
        return told, gone

    seen = [one_round() for _ in range(40)]
    told, gone = ([one for each in column for one in each] for column in zip(*seen))
    assert 6 < len(gone) < 3 * 6 + 6
    assert told == [
        "shuffle evicts none of its pods: its pods have been moved off busy nodes time and again, "
        "and no queue, node or job has changed since"
    ]
    here.queue("another")
    assert one_round()[1], "something outside has changed"


def test_a_pod_that_belongs_to_its_node_stays() -> None:
    here = of_the_page()
    for number in range(6):
        here.pod(
            f"six-task-{number}",
            node="hot",
            cpu=2,
            job="six",
            spec={"nodeSelector": {"kubernetes.io/hostname": "hot"}},
        )
    assert not any(rounds(here))


def test_what_was_tried_leaves_no_trace() -> None:
    here = of_the_page()
    nodes = here.state.nodes
    before = (
        nodes.used.copy(),
        nodes.releasing.copy(),
        nodes.pipelined.copy(),
        dict(here.state.jobs["default/six"].allocated),
    )
    here.now += 601
    policy_of_nobody = here.run("enqueue")
    assert policy_of_nobody.evictions == []
    session = open_session(here.state, hooks_of(here.state, here.policy), here.now + 601)
    running = list(here.state.tasks.values())
    assert session.votes.victim_tasks(running)
    assert (
        (nodes.used == before[0]).all()
        and (nodes.releasing == before[1]).all()
        and (nodes.pipelined == before[2]).all()
    )
    assert {task.status for task in running} == {Status.RUNNING}
    assert here.state.jobs["default/six"].allocated == before[3]


def test_strategies_are_checked() -> None:
    def read(strategies: list) -> None:
        plugin = {"name": "rescheduling", "arguments": {"strategies": strategies}}
        read_policy({"actions": "shuffle", "tiers": [{"plugins": [plugin]}]})

    with pytest.raises(PolicyError, match="does not exist"):
        read([{"name": "highNodeUtilization"}])
    with pytest.raises(PolicyError, match="cpu = 120"):
        read([{"name": "lowNodeUtilization", "params": {"thresholds": {"cpu": 120}}}])


def test_an_interval_that_cannot_be_read_is_five_minutes_where_nothing_is_refused() -> None:
    tree = {
        "actions": "shuffle",
        "tiers": [{"plugins": [{"name": "rescheduling", "arguments": {"interval": "often"}}]}],
    }
    with pytest.raises(PolicyError, match="often"):
        read_policy(tree)
    (option,) = read_policy(tree, strict=False).tiers[0]
    plugin = option.plugin(option.arguments, option.flags)
    assert isinstance(plugin, Rescheduling)
    assert plugin.interval == 300
