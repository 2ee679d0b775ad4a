"""One priority out of age, size, share, QOS and partition."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.engine.framework.policy import PolicyError
from hekla.engine.model.tasks import Job
from hekla.engine.plugins.fairness.fairshare import FairShare
from hekla.engine.plugins.fairness.multifactor import Multifactor
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import opened

COUNTS = {
    "name": "fairshare",
    "enableJobOrder": False,
    "arguments": {"fairshare.resourceKey": "cpu", "fairshare.weight.bob": 3},
}


def world(*more: Any, cpu: int = 4, **weights: Any) -> World:
    arguments = {f"multifactor.{name}": value for name, value in weights.items()}
    plugins = ["gang", {"name": "multifactor", "arguments": arguments}, *more, "predicates"]
    made = World(policy(plugins=plugins, actions="enqueue, allocate"))
    made.nodes("n1", cpu=cpu)
    return made


def priority(made: World, name: str, namespace: str = "default") -> float:
    session = opened(made)
    plugin = next(one for one in session.hooks.plugins if isinstance(one, Multifactor))
    job: Job = made.state.jobs[f"{namespace}/{name}"]
    return plugin.priority(job)


def bound(made: World) -> list[str]:
    decisions = made.run()
    assert decisions.problems == []
    return [bind.job.rpartition("/")[2] for bind in decisions.binds]


def test_age_counts_up_to_its_most() -> None:
    made = world(age=1000, maxAge="100h")
    made.job("old", cpu=1)
    began = made.state.jobs["default/old"].creation
    for hours, points in ((0, 0), (25, 250), (100, 1000), (300, 1000)):
        made.now = began + hours * 3600
        assert priority(made, "old") == points


@pytest.mark.parametrize(("small", "points"), [(False, 250), (True, 750)])
def test_size_is_the_part_of_the_cluster(small: bool, points: float) -> None:
    made = world(size=1000, favorSmall=small)
    made.job("quarter", pods=2, cpu="500m", min_resources={"cpu": 1})
    assert priority(made, "quarter") == points


def test_qos_and_partition_are_of_the_highest() -> None:
    made = world(qos=1000, partition=100)
    for name, value in (("low", 10), ("high", 40)):
        made.priority_class(name, value)
    made.queue("front", priority=4)
    made.queue("back", priority=1)
    made.job("a", queue="back", priority="low", cpu=1)
    made.job("b", queue="front", priority="high", cpu=1)
    assert (priority(made, "a"), priority(made, "b")) == (275, 1100)


def test_share_is_what_fairshare_counts() -> None:
    """bob has three times ada's weight, so with equal use he has used less of his share."""
    made = world(COUNTS, share=1000)
    for who in ("ada", "bob"):
        made.job("runs", namespace=who, cpu=1, on=["n1"], phase="Running")
        made.job("waits", namespace=who, cpu=3)
    made.job("waits", namespace="eve", cpu=3)
    made.run("enqueue")
    made.now += 3600
    made.run("enqueue")
    of = {who: priority(made, "waits", who) for who in ("ada", "bob", "eve")}
    assert of["eve"] == 1000
    assert of["ada"] == pytest.approx(1000 * 2 ** -(0.5 / 0.25))
    assert of["bob"] == pytest.approx(1000 * 2 ** -(0.5 / 0.75))


def test_the_share_of_an_account_is_divided_among_its_users() -> None:
    option = {
        "name": "fairshare",
        "arguments": {"fairshare.resourceKey": "cpu", "fairshare.identity": "account"},
    }
    made = world(option, share=1)
    for who, account in (("ada", "a"), ("bob", "a"), ("eve", "b")):
        marks = {"hekla.io/account": account}
        made.job("runs", namespace=who, cpu=1, on=["n1"], phase="Running", annotations=marks)
    made.run()
    made.now += 60
    session = opened(made)
    fair = next(one for one in session.hooks.plugins if isinstance(one, FairShare))
    thirds = 1 / 3
    assert fair.factor("default", "a/ada") == pytest.approx(2 ** -(thirds / 0.25))
    assert fair.factor("default", "b/eve") == pytest.approx(2 ** -(thirds / 0.5))


def test_the_sum_decides() -> None:
    made = world(qos=100, age=1000, maxAge="1000000s", cpu=1)
    made.priority_class("high", 10)
    made.job("old", cpu=1)
    made.now += 300_000
    made.job("urgent", cpu=1, priority="high")
    assert bound(made) == ["old"], "300 points of age are more than 100 of QOS"


def test_the_highest_sum_goes_first() -> None:
    made = world(qos=100, cpu=1)
    made.priority_class("high", 10)
    made.job("plain", cpu=1)
    made.job("urgent", cpu=1, priority="high")
    assert bound(made) == ["urgent"]


def test_a_share_without_fairshare_is_told() -> None:
    made = world(share=5)
    made.job("plain", cpu=1)
    (said,) = made.run().problems
    assert said.startswith("multifactor: multifactor.share = 5 needs the plugin fairshare")
    assert priority(made, "plain") == 5


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({}, "all weights are 0, so it orders nothing; at least one of multifactor.age"),
        ({"age": -1}, "multifactor.age = -1: a weight is a whole number from 0 up"),
        (
            {"age": 1, "maxAge": "a week"},
            "multifactor.maxAge = 'a week': 'a week' is not a duration",
        ),
        ({"age": 1, "maxAge": "0s"}, "multifactor.maxAge = '0s': a duration above 0"),
        ({"age": "much"}, "multifactor.age = 'much'"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(weights: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError) as refused:
        world(**weights)
    assert said in str(refused.value)
