"""Filters, scores and selectors: the reference's own numbers."""

from typing import Any

import pytest

from hekla.controllers.sharding.policies import (
    AllocationRate,
    Chain,
    NodeLimit,
    NodeUse,
    Policy,
    Warmup,
    assign,
)

WARM = {"node.volcano.sh/warmup": "true"}


def node(name: str, cpu: float | None, *, warm: bool = False) -> NodeUse:
    return NodeUse(name, cpu, 0.0, WARM if warm else {})


def rate(low: float = 0.0, high: float = 1.0) -> AllocationRate:
    return AllocationRate({"minCPUUtil": low, "maxCPUUtil": high})


def chosen(nodes: list[NodeUse], *links: tuple[Policy, float]) -> list[str]:
    return [each.name for each in Chain(links).choose(nodes)]


@pytest.mark.scenario("controllers", 158)
def test_a_range_and_warm_nodes() -> None:
    nodes = [
        node("n1", 0.10, warm=True),
        node("n2", 0.55),
        node("n3", 0.05, warm=True),
        node("n4", 0.40),
        node("n5", 0.65, warm=True),
        node("n6", 0.90),
        node("n7", 0.30, warm=True),
        node("n8", None),
    ]
    assert chosen(nodes, (rate(0, 0.6), 1), (Warmup({}), 2)) == ["n7", "n1", "n3", "n2", "n4"]


@pytest.mark.scenario("controllers", 159)
def test_policies_together() -> None:
    spread = [node("a", 0.2), node("b", 0.4), node("c", 0.8)]
    assert chosen(spread, (rate(0, 0.5), 1), (rate(0.3, 1), 1)) == ["b"], "every filter counts"
    cold = [node("a", 0.9), node("b", 0.1, warm=True), node("c", None)]
    assert chosen(cold, (Warmup({}), 1)) == ["b", "a", "c"], "warmth filters nobody"
    assert chosen(cold[:2], (rate(), 10), (Warmup({}), 1)) == ["a", "b"]
    four = [node("a", 0.4), node("b", 0.8), node("c", 0.2), node("d", 0.6)]
    assert chosen(four, (rate(), 1), (NodeLimit({"maxNodes": 2}), 1)) == ["b", "d"]
    chains = {
        "first": Chain([(rate(), 1), (NodeLimit({"maxNodes": 2}), 1)]),
        "second": Chain([(rate(), 1)]),
    }
    assert assign(chains, four) == {"first": ["b", "d"], "second": ["a", "c"]}


@pytest.mark.scenario("controllers", 161)
def test_ranges_leave_no_gap() -> None:
    nodes = [node("even", 4000 / 8000), node("below", 3900 / 8000), node("above", 4100 / 8000)]
    chains = {"low": Chain([(rate(0, 0.49), 1)]), "high": Chain([(rate(0.5, 1), 1)])}
    assert assign(chains, nodes) == {"low": ["below"], "high": ["above", "even"]}


@pytest.mark.scenario("controllers", 163)
def test_allocation_rate() -> None:
    policy = rate(0.2, 0.6)
    assert [policy.accepts(node("n", cpu)) for cpu in (0.2, 0.6, 0.19, 0.61, None, -0.1)] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert policy.score(node("n", 0.4)) == pytest.approx(0.5)
    assert rate(0.5, 0.5).score(node("n", 0.5)) == 1
    assert policy.score(node("n", None)) == 0
    for low, high in ((0.6, 0.2), (-0.1, 0.5), (0, 1.1)):
        with pytest.raises(ValueError, match="allocation-rate: "):
            rate(low, high)
    assert not AllocationRate({"minCPUUtil": 0}).accepts(node("n", 0.1)), "an absent bound is 0"


@pytest.mark.scenario("controllers", 163)
def test_limits_and_labels() -> None:
    assert NodeLimit({"minNodes": 1.0, "maxNodes": 3.0}).most == 3, (
        "YAML may write a whole number with a point"
    )
    bad: list[dict[str, Any]] = [{"minNodes": -1}, {"minNodes": 3, "maxNodes": 2}]
    for arguments in bad:
        with pytest.raises(ValueError, match="node-limit: "):
            NodeLimit(arguments)
    assert NodeLimit({}).select([node("a", 0)] * 3) == [node("a", 0)] * 3
    with pytest.raises(ValueError, match="warmupLabel is empty"):
        Warmup({"warmupLabel": ""})
    marked = Warmup({"warmupLabel": "pool", "warmupLabelValue": "hot"})
    assert marked.score(NodeUse("n", labels={"pool": "hot"})) == 1


def test_a_limit_holds_for_all_nodes_together() -> None:
    many = [node(f"n{at:03}", 0.1) for at in range(200)]
    assert len(chosen(many, (rate(), 1), (NodeLimit({"maxNodes": 7}), 1))) == 7


@pytest.mark.scenario("controllers", 166)
def test_no_nodes_at_all() -> None:
    assert assign({"a": Chain([(rate(), 1)]), "b": Chain([])}, []) == {"a": [], "b": []}
