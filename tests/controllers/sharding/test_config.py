"""The configuration of shards: what is taken, what is filled in, what is refused and why."""

from pathlib import Path

import pytest
import yaml

from hekla.controllers.daemon import FLAGS
from hekla.controllers.sharding.config import (
    DEFAULT_FLAGS,
    PolicyConfig,
    ShardingConfig,
    of_flags,
    read,
)
from hekla.kube.flags import FlagError, parse


def config(text: str) -> ShardingConfig:
    return read(text, 60.0, True)


def policies(scheduler: str) -> list[tuple[str, float, dict[str, object]]]:
    made = config("schedulerConfigs:\n- " + scheduler.replace("\n", "\n  "))
    return [(each.name, each.weight, dict(each.arguments)) for each in made.schedulers[0].policies]


@pytest.mark.scenario("controllers", 160)
def test_what_is_filled_in() -> None:
    explicit = "name: a\npolicies:\n- {name: warmup, weight: 2}\n- {name: allocation-rate, arguments: {maxCPUUtil: 0.5}}"
    assert policies(explicit) == [("warmup", 2, {}), ("allocation-rate", 1, {"maxCPUUtil": 0.5})]
    bounds = {"minCPUUtil": 0.1, "maxCPUUtil": 0.6}
    assert policies("name: a\ncpuUtilizationMin: 0.1\ncpuUtilizationMax: 0.6") == [
        ("allocation-rate", 1, bounds)
    ]
    assert policies("name: a\ncpuUtilizationMax: 0.6\npreferWarmupNodes: true")[1] == (
        "warmup",
        1,
        {},
    )
    assert policies("name: a\nmaxNodes: 5")[1] == ("node-limit", 1, {"minNodes": 0, "maxNodes": 5})
    kept = "name: a\nmaxNodes: 5\npolicies:\n- {name: node-limit, arguments: {maxNodes: 2}}"
    assert policies(kept) == [("node-limit", 1, {"maxNodes": 2})]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("schedulerConfigs: []", "needs at least one scheduler"),
        ("a: [", "is no YAML"),
        ("- a", "has to be a mapping"),
        ("schedulerConfigs: [{type: x}]", "needs a name"),
        (
            "schedulerConfigs: [{name: a, cpuUtilizationMin: 0.9, cpuUtilizationMax: 0.1}]",
            "in order",
        ),
        ("schedulerConfigs: [{name: a, cpuUtilizationMax: 1.5}]", "from 0 to 1"),
        ("schedulerConfigs: [{name: a, minNodes: -1}]", "0 or more"),
        ("schedulerConfigs: [{name: a, minNodes: 3}]", "in order"),
        ("schedulerConfigs: [{name: a, policies: [{weight: 1}]}]", "a policy needs a name"),
        (
            "schedulerConfigs: [{name: a, policies: [{name: warmup, weight: -1}]}]",
            "weight of policy warmup",
        ),
        (
            "schedulerConfigs: [{name: a, policies: [{name: warmup, arguments: {maxNodes: 1}}]}]",
            "arguments of node-limit",
        ),
        (
            "schedulerConfigs: [{name: a, policies: [{name: warm-up}]}]",
            "unknown policy 'warm-up'; did you mean warmup?",
        ),
        ("schedulerConfigs: [{name: a}, {name: a}]", "one name"),
        ("schedulerConfigs: [{name: a}]\nshardSyncPeriod: soon", "duration"),
    ],
)
def test_what_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("?", r"\?")):
        config(text)


def test_period_and_events() -> None:
    made = config(
        'schedulerConfigs: [{name: a}]\nshardSyncPeriod: "90s"\nenableNodeEventTrigger: false'
    )
    assert (made.period, made.node_events) == (90.0, False)
    assert config("schedulerConfigs: [{name: a}]").period == 60.0
    assert read("schedulerConfigs: [{name: a}]", 0.0, True).period == 120.0


@pytest.mark.scenario("controllers", 165)
def test_flags() -> None:
    first, second = of_flags([], 60.0, True).schedulers
    assert (first.name, first.type, second.name, second.type) == (
        "volcano",
        "volcano",
        "agent-scheduler",
        "agent",
    )
    assert first.policies == (
        PolicyConfig("allocation-rate", 1.0, {"minCPUUtil": 0.0, "maxCPUUtil": 0.6}),
        PolicyConfig("node-limit", 1.0, {"minNodes": 2, "maxNodes": 100}),
    )
    assert of_flags(["a:b:-inf:inf:true:0:0"], 60.0, True).schedulers[0].policies == (
        PolicyConfig("allocation-rate", 1.0, {"minCPUUtil": 0.0, "maxCPUUtil": 1.0}),
    )
    assert parse(FLAGS, []).scheduler_configs == list(DEFAULT_FLAGS)
    for text in (
        "a:b:0:1:true:0",
        "a:b:x:1:true:0:0",
        "a:b:0:1:maybe:0:0",
        "a:b:0:1:true:x:0",
        "a:b:0:2:true:0:0",
    ):
        with pytest.raises(ValueError, match=r"a:b"):
            of_flags([text], 60.0, True)
        with pytest.raises(FlagError):
            parse(FLAGS, [f"--scheduler-configs={text}"])


def test_the_document_of_the_page() -> None:
    """What docs/flows.md shows is taken as it stands."""
    page = (Path(__file__).parents[3] / "docs" / "flows.md").read_text()
    block = next(
        part for part in page.split("```") if part.startswith("yaml\ndata:\n  sharding.yaml")
    )
    made = config(yaml.safe_load(block.removeprefix("yaml\n"))["data"]["sharding.yaml"])
    assert [each.name for each in made.schedulers[0].policies] == [
        "allocation-rate",
        "warmup",
        "node-limit",
    ]
