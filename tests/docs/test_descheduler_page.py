"""The page about the descheduler: its policy is read and does what is said, and its tables name what is there."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path

import pytest

from hekla.descheduler.daemon import FLAGS
from hekla.descheduler.memory import Memory
from hekla.descheduler.metrics import Metrics
from hekla.descheduler.plugins.registry import PLUGINS
from hekla.descheduler.policy.policy import REGISTRY, PolicyError
from hekla.descheduler.policy.reader import read
from hekla.descheduler.returns import STANDARD
from hekla.descheduler.scheduler_copy import BACK
from hekla.descheduler.tables import Tables
from hekla.descheduler.usage import Usage
from hekla.monitoring.cluster_metrics import Sample
from tests.descheduler.stories import NOW, measured, node, pod, run

PAGE = (Path(__file__).parents[2] / "docs/descheduler.md").read_text()
POLICY, CALM, ASKS, ROOM = re.findall(r"```yaml\n(apiVersion:.*?)```", PAGE, re.DOTALL)


def rows(title: str) -> list[list[str]]:
    """The cells of the first table of a section, without its head."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [line.strip("|").split("|") for line in lines[2:]]


def test_the_policy_of_the_page_evicts_as_the_page_says() -> None:
    tables = Tables(
        [node(name, 10000) for name in ("n1", "n2")],
        [pod("busy", "n1", 100), pod("critical", "n1", 100, priority=10000)],
    )
    usage = measured({"n1": (9000, 0), "n2": (1000, 0)}, {"busy": (2000, 0)})
    (eviction,) = run(read(POLICY), tables, usage).evictions
    assert eviction.pod.name == "busy"
    said = f"Normal  {eviction.strategy}  pod evicted from n1 node by the descheduler: {eviction.reason}"
    assert said in PAGE


def test_the_calm_policy_of_the_page_does_what_the_page_says() -> None:
    policy, memory = read(CALM), Memory()
    assert policy.back_off == STANDARD
    assert [policy.back_off.after(times) / 60 for times in range(1, 7)] == [5, 10, 20, 40, 80, 160]
    assert policy.back_off.after(7) == inf
    labels = {"accelerator": "nvidia"}
    nodes = [
        node("g1", 10000, labels=labels),
        node("g2", 10000, labels=labels),
        node("n1", 10000),
        node("n2", 10000),
    ]
    tables = Tables(
        nodes, [pod(f"{at}-{number}", at, 100) for at in ("g1", "n1") for number in range(3)]
    )
    evicted = []
    for moment in range(3):
        nodes_of = {"g1": 9000, "g2": 1000, "n1": 9000, "n2": 1000}
        usage = Usage({name: Sample(cpu, 0.0, NOW + moment) for name, cpu in nodes_of.items()})
        evicted.append(len(run(policy, tables, usage, memory=memory).names))
    assert evicted == [0, 0, 2], (
        "only n1 is over a target, at the third measurement, and two of an owner may go"
    )


def test_what_the_page_says_of_the_scheduler_is_what_the_log_says() -> None:
    assert read(ASKS).asks_scheduler
    assert f"LowNodeUtilization left 3 pods: {BACK}" in PAGE


def test_the_policy_about_fragmentation_and_packing() -> None:
    nodes = [node("n1", 1000, 1000), node("n2", 1000, 1000)]
    web = {"labels": {"app": "web"}}
    pods = [
        pod("a", "n1", 650, 50, **web),
        pod("b", "n1", 250, 200, **web),
        pod("m", "n2", 100, 500),
    ]
    ran = run(read(ROOM), Tables(nodes, pods))
    assert [(one.strategy, one.pod.name) for one in ran.evictions] == [("FragmentationAware", "a")]
    assert "cpu 90%, memory 25% given away, a deviation of 0.33" in ran.evictions[0].reason
    assert {pod.name: cost for pod, cost in ran.report.deletion_costs.values()} == {"b": 0}


@pytest.mark.parametrize(
    ("before", "after"), [("cpu: 30", "cpu: 130"), ("RemoveFailedPods\n", "RemoveFailed\n")]
)
def test_the_errors_of_the_page_are_those_of_wrong_policies(before: str, after: str) -> None:
    with pytest.raises(PolicyError) as error:
        read(POLICY.replace(before, after, 1))
    assert error.value.problems[0] in PAGE


def test_the_tables_name_what_is_there() -> None:
    flags = {name for row in rows("Flags") for name in re.findall(r"`--([a-z-]+)`", row[0])}
    assert flags <= {flag.name for flag in FLAGS}
    assert (
        {row[0].strip(" `") for row in rows("Plugins")}
        == set(PLUGINS)
        == set(REGISTRY) - {"DefaultEvictor"}
    )
    for name, point, _ in rows("Plugins"):
        assert point.strip() in REGISTRY[name.strip(" `")].points
    declared = {metric.name for metric in Metrics().registry.collect()}
    assert {row[0].strip(" `") for row in rows("Metrics")} == declared
