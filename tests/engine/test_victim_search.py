"""The search for victims, step by step: whom it asks, whom it evicts, when it gives up, and what a
failed search leaves behind."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

import numpy as np
import pytest

from hekla.engine.actions.evicting import commit, conclude, stands_back, waiting_tasks
from hekla.engine.actions.victim_search import VictimSearch, unresolvable
from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.session import Session
from hekla.engine.framework.statement import Statement
from hekla.engine.model.arrays import Rows
from hekla.engine.model.reasons import FitErrors
from hekla.engine.model.tasks import Job, Status, Task
from hekla.engine.model.transfers import IN_VAIN, MOST_IN_VAIN
from hekla.engine.world import World, policy

TIERS = [["priority", "gang"], ["predicates", "proportion"]]
RUNNING = (Status.RUNNING,)


class Stage:
    """A full cluster of two nodes: `old` has four pods of one core, `urgent` wants a core."""

    def __init__(self, **urgent: object) -> None:
        self.world = World(policy(tiers=TIERS, actions="preempt"))
        self.world.priority_class("low", 10)
        self.world.priority_class("high", 1000)
        self.world.nodes("n1", "n2", cpu=2)
        self.world.job(
            "old", pods=4, min_available=1, cpu=1, priority="low", on=["n1", "n1", "n2", "n2"]
        )
        settings: dict[str, Any] = {"pods": 1, "min_available": 1, "cpu": 1, "priority": "high"}
        self.world.job("urgent", **settings | urgent)
        self.session: Session = open_session(
            self.world.state, hooks_of(self.world.state, self.world.policy), self.world.now
        )
        self.search = VictimSearch(
            self.session,
            "preempt",
            "preemptable",
            lambda plugin, task, candidates: plugin.preemptable(task, candidates),
        )

    def job(self, name: str) -> Job:
        return self.world.state.jobs[f"default/{name}"]

    def task(self, name: str) -> Task:
        return self.world.state.tasks[f"default/{name}"]

    @property
    def urgent(self) -> Task:
        return self.task("urgent-task-0")

    def row(self, node: str) -> int:
        return self.world.state.nodes.rows[node]

    def names(self, tasks: Collection[Task]) -> list[str]:
        return sorted(task.name for task in tasks)

    def fits_on(self, node: str) -> bool:
        return self.session.state.nodes.fits_future(self.row(node), self.urgent.request)

    def candidates(self, node: str) -> list[Task]:
        return self.search.candidates(self.urgent, self.row(node), RUNNING, lambda victim: True)


# ------------------------------------------------------------------------------------ who is asked


def test_only_pods_of_the_node_and_of_a_fitting_status_are_asked():
    stage = Stage()

    found = stage.candidates("n1")

    assert stage.names(found) == ["old-task-0", "old-task-1"]
    assert (
        stage.search.candidates(stage.urgent, stage.row("n1"), (Status.BOUND,), lambda one: True)
        == []
    )


def test_the_action_says_who_may_go():
    stage = Stage()
    spared = stage.task("old-task-0")

    found = stage.search.candidates(
        stage.urgent, stage.row("n1"), RUNNING, lambda victim: victim is not spared
    )

    assert stage.names(found) == ["old-task-1"]


def test_a_pod_that_says_it_may_not_be_preempted_is_not_asked():
    stage = Stage()
    stage.task("old-task-1").preemptable = False

    assert stage.names(stage.candidates("n1")) == ["old-task-0"]


def test_who_took_the_room_before_is_left_alone_and_named():
    stage = Stage()
    stage.world.job("taker", pods=1, cpu=1, on=["n1"])
    stage.session.state.transfers.evicted(stage.task("old-task-0"), stage.job("taker"))

    found = stage.search.candidates(
        stage.task("old-task-1"), stage.row("n1"), RUNNING, lambda victim: True
    )

    assert stage.names(found) == ["old-task-0", "old-task-1"]
    assert list(stage.search.met.takers) == ["job default/taker"]


# ---------------------------------------------------------------------------------- who is let go


def test_plugins_let_the_lesser_go_and_that_makes_room():
    stage = Stage()

    victims, enough = stage.search.victims(stage.urgent, stage.row("n1"), stage.candidates("n1"))

    assert enough
    assert victims, "old has more pods than its minimum"


def test_a_node_whose_pods_are_all_spared_is_counted_with_who_spared_them():
    stage = Stage(priority="low")

    victims, enough = stage.search.victims(stage.urgent, stage.row("n1"), stage.candidates("n1"))

    assert (victims, enough) == ([], False)
    assert stage.search.met.spared == 1
    assert stage.search.met.plugins == ("priority",)
    assert stage.search.met.text("of queue default") == "1 node has only pods that priority spares"


def test_victims_that_are_too_small_are_counted_as_short():
    stage = Stage(cpu=8)

    _, enough = stage.search.victims(stage.urgent, stage.row("n1"), stage.candidates("n1"))

    assert not enough
    assert stage.search.met.short == 1


# ------------------------------------------------------------------------------------ one by one


def test_no_more_are_evicted_than_it_takes():
    stage = Stage()

    trial = stage.search.evict_until(
        lambda: stage.fits_on("n1"), stage.urgent, stage.candidates("n1")
    )

    assert trial is not None
    assert len(trial.operations) == 1
    leaving = stage.job("old").counts.statuses[Status.RELEASING]
    assert len(leaving) == 1


def test_nobody_is_evicted_when_all_together_would_not_be_enough():
    stage = Stage(cpu=8)

    trial = stage.search.evict_until(
        lambda: stage.fits_on("n1"), stage.urgent, stage.candidates("n1")
    )

    assert trial is None
    assert not stage.job("old").counts.statuses[Status.RELEASING], "all were taken back"


def test_one_may_still_be_spared_when_its_turn_comes():
    stage = Stage()
    candidates = stage.candidates("n1")
    asked: list[str] = []

    def may_go(victim: Task) -> bool:
        asked.append(victim.name)
        return len(asked) > 1

    trial = stage.search.evict_until(lambda: stage.fits_on("n1"), stage.urgent, candidates, may_go)

    assert trial is not None
    evicted = stage.job("old").counts.statuses[Status.RELEASING].values()
    assert [task.name for task in evicted] == asked[1:]


# ------------------------------------------------------------------------------------ the promise


def make_room(stage: Stage, rows: Rows) -> Statement | None:
    """On the first row on which evicting helps."""
    for row in rows.tolist():
        task = stage.urgent
        candidates = stage.search.candidates(task, row, RUNNING, lambda victim: True)
        victims, enough = stage.search.victims(task, row, candidates)
        if enough:
            node = stage.world.state.nodes.names[row]
            trial = stage.search.evict_until(partial(stage.fits_on, node), task, victims)
            if trial is not None:
                trial.pipeline(task, row, True)
                return trial
    return None


def test_a_promise_names_the_node_and_takes_the_evictions_along():
    stage = Stage()
    statement = stage.session.statement()

    held = stage.search.promise(
        statement, stage.urgent, np.array([True, True]), lambda rows: make_room(stage, rows)
    )

    assert held
    assert statement.evicts
    assert stage.urgent.status is Status.PIPELINED
    assert stage.urgent.row == stage.row("n1")


def test_nodes_that_no_eviction_could_help_are_not_tried():
    stage = Stage()
    errors = FitErrors(2)
    errors.unresolvable = np.array([True, False])
    stage.job("urgent").fit_errors[stage.urgent.key] = errors
    tried: list[int] = []

    def on_rows(rows: Rows) -> Statement | None:
        tried.extend(rows.tolist())
        return None

    held = stage.search.promise(
        stage.session.statement(), stage.urgent, np.array([True, True]), on_rows
    )

    assert not held
    assert tried == [stage.row("n2")]


def test_reasons_that_evictions_could_help_rule_out_no_node():
    stage = Stage()
    job = stage.job("urgent")
    assert unresolvable(job, stage.urgent) is None

    errors = FitErrors(2)
    errors.unresolvable = np.array([False, False])
    job.fit_errors[stage.urgent.key] = errors

    assert unresolvable(job, stage.urgent) is None


def test_a_search_that_failed_is_not_made_again_for_a_pod_like_that_one():
    stage = Stage(pods=2, priority="low")
    first, second = stage.urgent, stage.task("urgent-task-1")
    tried: list[str] = []

    def on_rows(rows: Rows) -> Statement | None:
        tried.append("searched")
        stage.search.met.empty += 1
        return None

    for task in (first, second):
        stage.search.begin()
        assert not stage.search.promise(
            stage.session.statement(), task, np.array([True, True]), on_rows
        )

    assert tried == ["searched"]
    assert stage.search.met.empty == 1, "the second one is told what the first one met"


def test_a_new_search_has_met_nothing_yet():
    stage = Stage(priority="low")
    stage.search.victims(stage.urgent, stage.row("n1"), stage.candidates("n1"))

    stage.search.begin()

    assert stage.search.met.text("of queue default") == "no node is left that evictions could help"


def test_a_pod_that_never_got_what_was_freed_for_it_is_given_up():
    stage = Stage()
    assert not stage.search.gave_up(stage.urgent)

    stage.session.state.transfers.in_vain[stage.urgent.key] = MOST_IN_VAIN

    assert stage.search.gave_up(stage.urgent)
    assert stage.search.met.text("of queue default") == IN_VAIN


# ------------------------------------------------------------- before a search, and at its end


def evicting_statement(stage: Stage) -> Statement:
    statement = stage.session.statement()
    statement.evict(stage.task("old-task-0"), "preempt")
    return statement


def test_a_job_that_has_enough_then_has_its_victims_evicted():
    stage = Stage()
    statement = evicting_statement(stage)
    statement.pipeline(stage.urgent, stage.row("n1"), True)

    conclude(stage.session, stage.job("urgent"), statement, "preempt")

    decided = stage.session.decisions
    assert [one.pod for one in decided.evictions] == ["default/old-task-0"]
    assert ("eviction_transactions_total", (("action", "preempt"),), 1.0) in decided.metrics


def test_nobody_is_evicted_for_a_job_that_would_still_lack_pods():
    stage = Stage(pods=2, min_available=2)
    statement = evicting_statement(stage)
    statement.pipeline(stage.urgent, stage.row("n1"), True)

    conclude(stage.session, stage.job("urgent"), statement, "preempt")

    assert not stage.session.decisions.evictions
    assert stage.task("old-task-0").status is Status.RUNNING
    assert stage.urgent.status is Status.PENDING


def test_a_statement_that_evicts_nobody_is_no_transaction():
    stage = Stage()
    statement = stage.session.statement()
    statement.pipeline(stage.urgent, stage.row("n1"))

    commit(stage.session, statement, "reclaim")

    names = {name for name, _, _ in stage.session.decisions.metrics}
    assert "eviction_transactions_total" not in names


def test_a_job_whose_bind_was_refused_stands_back_for_a_while():
    stage = Stage()
    job = stage.job("urgent")
    assert not stands_back(stage.session, job)

    stage.session.state.back_off.failed(job.key, stage.session.now)

    assert stands_back(stage.session, job)


@pytest.mark.parametrize("gates", [(), ("example.com/hold",)])
def test_tasks_behind_a_gate_claim_nothing(gates: tuple[str, ...]):
    stage = Stage(pods=2)
    stage.task("urgent-task-1").gated = gates

    waiting = waiting_tasks(stage.session, stage.job("urgent"))

    expected = ["urgent-task-0"] if gates else ["urgent-task-0", "urgent-task-1"]
    assert [task.name for task in waiting] == expected
