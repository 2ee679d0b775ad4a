"""Plugins of users: simple ones, vector ones, and those that fail."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from hekla.engine.custom import CustomPluginError, Node, Pod, SimplePlugin, guarded
from hekla.engine.plugin import Plugin
from hekla.engine.world import World, policy

HERE = __file__


def world(*users: type, nodes: int = 2, cpu: int = 4) -> World:
    custom = [guarded(user, HERE) for user in users]
    made = World(policy(plugins=["gang", "predicates", *(one.name for one in custom)], custom=custom))
    made.nodes(*(f"n{number + 1}" for number in range(nodes)), cpu=cpu)
    return made


class OnlyTheSecond(SimplePlugin):
    name = "only-the-second"

    def predicate(self, pod: Pod, node: Node) -> bool | str:
        return node.name == "n2" or f"node(s) that are not n2, for {pod.job}"


class LeastUsed(SimplePlugin):
    name = "least-used"

    def score(self, pod: Pod, node: Node) -> float:
        return 100.0 * node.idle["cpu"] / node.allocatable["cpu"]


class OneEach(SimplePlugin):
    name = "one-each"

    def predicate(self, pod: Pod, node: Node) -> bool | str:
        return not node.pods or "node(s) taken"


def line_of(function: Any, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def test_a_simple_predicate_decides_and_gives_its_own_reason():
    made = world(OnlyTheSecond)
    made.job("job", pods=2, cpu=3)

    decisions = made.run()

    assert not decisions.binds
    assert any("1 node(s) that are not n2, for default/job" in one.message for one in decisions.conditions)


def test_a_simple_score_sees_each_placement():
    made = world(LeastUsed)
    made.job("job", pods=4, cpu=1)

    nodes = [bind.node for bind in made.run().binds]

    assert nodes == ["n1", "n2", "n1", "n2"]


def test_a_simple_predicate_sees_each_placement():
    made = world(OneEach, nodes=3)
    made.job("job", pods=3, cpu=1)
    made.job("other", pods=1, cpu=1)

    decisions = made.run()

    assert decisions.nodes_of("job") == {"n1", "n2", "n3"}
    assert "taken" in made.why("other")


class Raises(SimplePlugin):
    name = "raises"

    def predicate(self, pod: Pod, node: Node) -> bool | str:
        return node.labels["absent"] == "x"  # raises


def test_an_error_names_plugin_file_and_line_and_the_pod_waits():
    made = world(Raises)
    made.job("job", pods=1, cpu=1)

    decisions = made.run()

    text = f"plugin raises failed in predicate: KeyError: 'absent' ({HERE}:{line_of(Raises, '# raises')})"
    assert decisions.problems == [text]
    assert not decisions.binds
    assert text in decisions.conditions[0].message


class BadOrder(Plugin):
    name = "bad-order"

    def job_order(self, job: Any) -> Any:
        return "first"

    def job_enqueueable(self, job: Any) -> int:
        raise RuntimeError("lost")

    def score(self, pods: Any, nodes: Any) -> Any:
        return np.full(len(nodes), np.nan)

    def close(self, session: Any) -> None:
        raise ValueError("at the end")


def test_whatever_a_vector_plugin_answers_the_cycle_goes_on():
    made = world(BadOrder)
    made.job("job", pods=2, cpu=1)
    made.job("pending", pods=1, cpu=1, phase="Pending", min_resources={"cpu": 1})

    decisions = made.run()

    assert {bind.job for bind in decisions.binds} == {"default/job", "default/pending"}
    told = "\n".join(decisions.problems)
    for part in ("job_order: TypeError: it answered 'first', where a number", "job_enqueueable: RuntimeError: lost",
                 "score: ValueError: a score is not finite", "close: ValueError: at the end"):  # fmt: skip
        assert part in told


class CannotBeMade(SimplePlugin):
    name = "cannot-be-made"

    def __init__(self) -> None:
        raise OSError("no licence server")

    def predicate(self, pod: Pod, node: Node) -> bool:
        return True


def test_a_filter_that_cannot_be_made_lets_nothing_through_and_says_so():
    made = world(CannotBeMade)
    made.job("job", pods=1, cpu=1)

    decisions = made.run()

    assert not decisions.binds
    assert "failed in __init__: OSError: no licence server" in decisions.problems[0]


def test_a_wrong_shape_is_told():
    class Short(Plugin):
        name = "short"

        def predicate(self, pods: Any, nodes: Any) -> Any:
            return np.ones(1, dtype=np.bool_)

    made = world(Short)
    made.job("job", pods=1, cpu=1)

    assert "it answered bool of shape (1,), where bool of (" in made.run().problems[0]


def test_a_hook_that_is_misspelt_is_refused():
    class Misspelt(SimplePlugin):
        name = "misspelt"

        def predicat(self, pod: Pod, node: Node) -> bool:
            return True

    with pytest.raises(CustomPluginError, match='did you mean "predicate"'):
        guarded(Misspelt, HERE)
