"""Plugins of users: simple ones, vector ones, and those that fail."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hekla.engine.framework.custom import CustomPluginError, Node, Pod, SimplePlugin, guarded
from hekla.engine.framework.plugin import Plugin
from hekla.engine.world import World, policy

HERE = __file__


def world(*users: type, nodes: int = 2, cpu: int = 4) -> World:
    custom = [guarded(user, HERE) for user in users]
    made = World(
        policy(plugins=["gang", "predicates", *(one.name for one in custom)], custom=custom)
    )
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
    assert any(
        "1 node(s) that are not n2, for default/job" in one.message for one in decisions.conditions
    )


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
    assert text.replace(HERE, Path(HERE).name) in decisions.conditions[0].message


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
    for part in (
        "job_order: TypeError: it answered 'first', where a number",
        "job_enqueueable: RuntimeError: lost",
        "score: ValueError: a score is not finite",
        "close: ValueError: at the end",
    ):
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


class Answers(SimplePlugin):
    """Gives a prepared answer."""

    name = "answers"
    verdict: Any = True
    points: Any = 1.0

    def predicate(self, pod: Pod, node: Node) -> bool | str:
        return self.verdict() if callable(self.verdict) else self.verdict

    def score(self, pod: Pod, node: Node) -> float:
        return self.points


def answering(**answers: Any) -> World:
    made = world(type("Answers", (Answers,), answers))
    made.job("job", cpu=1)
    made.run()
    return made


@pytest.mark.parametrize("verdict", [0, 1, [], 2.5, b"no"])
def test_a_verdict_that_is_none_is_told_as_a_fault(verdict: Any):
    made = answering(verdict=verdict)

    assert not made.decisions.binds
    (problem,) = made.decisions.problems
    assert problem.startswith(
        f"plugin answers failed in predicate: TypeError: it answered {verdict!r}, where True, False or a text is"
    )
    assert problem.endswith(f" expected ({__file__})")
    assert problem.replace(__file__, Path(__file__).name) in made.why("job")


@pytest.mark.parametrize(
    ("verdict", "passes"), [(np.True_, True), (np.False_, False), (None, True), ("", False)]
)
def test_verdicts_of_numpy_and_no_answer_count_as_what_they_mean(verdict: Any, passes: bool):
    made = answering(verdict=verdict)

    assert bool(made.decisions.binds) is passes
    assert not made.decisions.problems


@pytest.mark.parametrize(("answers", "said"), [
    ({"points": None}, "score: TypeError: it answered None, where a number is expected"),
    ({"points": "7"}, "score: TypeError: it answered '7', where a number is expected"),
    ({"weight": float("nan")}, "scores: TypeError: its weight is nan, where a number is expected"),
])  # fmt: skip
def test_a_score_that_is_none_counts_nothing_and_is_told(answers: dict[str, Any], said: str):
    made = answering(**answers)

    assert made.decisions.binds
    assert made.decisions.problems[0].startswith(f"plugin answers failed in {said}")


def test_a_plugin_that_wants_to_end_the_program_ends_its_answer():
    made = answering(verdict=staticmethod(lambda: sys.exit(3)))

    assert "plugin answers failed in predicate: SystemExit: 3" in made.why("job")


def test_what_a_fault_says_is_the_same_in_every_process():
    made = answering(verdict=staticmethod(lambda: object()))

    assert "it answered <object object>, where" in made.decisions.problems[0]


@pytest.mark.parametrize("owner", ["pod", "node"])
@pytest.mark.parametrize("kept", ["labels", "annotations"])
def test_what_a_plugin_is_shown_it_cannot_change(owner: str, kept: str):
    class Writes(SimplePlugin):
        name = "writes"

        def predicate(self, pod: Pod, node: Node) -> bool | str:
            getattr({"pod": pod, "node": node}[owner], kept)["a"] = "b"
            return True

    made = world(Writes)
    made.job("job", cpu=1)
    made.run()

    assert "does not support item assignment" in made.why("job")


def test_victims_that_are_no_pods_are_the_fault_of_who_named_them():
    class Names(Plugin):
        name = "names"

        def victim_tasks(self, candidates: Any) -> Any:
            return [1]

    made = world(Names)
    made.nodes("n1", cpu=4)
    made.job("runs", cpu=1, on=["n1"])

    assert made.run("shuffle").problems == [
        f"plugin names failed in victim_tasks: TypeError: it answered [1], where a list of tasks is expected ({HERE})"
    ]


def test_an_answer_of_a_fixed_length_is_only_judged_where_there_are_nodes():
    class Both(Plugin):
        name = "both"

        def score(self, pods: Any, nodes: Any) -> Any:
            return [1.0, 2.0]

    made = world(Both)
    made.job("job", pods=1, cpu=1)

    assert not made.run().problems


def test_pods_that_ask_for_nothing_are_not_called_running():
    made = answering(verdict=False)
    made.job("light", pods=1)
    made.run("allocate, backfill")

    assert made.why("light").startswith(
        "light needs 1 pod; 0 fit. 2 nodes: 2 are out: node(s) refused by answers."
    )
