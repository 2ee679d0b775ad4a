"""Runs cases of kind session and multi-session: open, run the actions, compare what was decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from hekla.engine.actions import ACTIONS
from hekla.engine.actions.backfill import pick
from hekla.engine.cycle import close_session, hooks_of, open_session
from hekla.engine.framework.policy import Policy
from hekla.engine.framework.session import Session
from hekla.engine.model.state import State
from hekla.engine.model.tasks import Status, is_allocated
from hekla.engine.model.time.durations import instant
from hekla.engine.report import phase_of
from tests.conformance.case import Case, Difference, feed, policy_of, state_of


def open_case(state: State, policy: Policy, case: Case) -> Session:
    """A session over the case's cluster, its knobs turned."""
    session = open_session(state, hooks_of(state, policy), instant(case.get("wall_clock", "")))
    sharding = (case.get("knobs") or {}).get("sharding")
    if sharding and sharding.get("mode") in ("hard", "soft"):
        inside = set(sharding.get("nodes_in_shard") or ())
        session.shard_mode = sharding["mode"]
        session.node_scope = np.array([name in inside for name in state.nodes.names])
    return session


def run_session(case: Case) -> list[Difference]:
    """What differed; empty when the case holds."""
    policy = policy_of(case, case["actions"])
    state = state_of(case)
    feed(state, case["objects"], case["knobs"])
    session = open_case(state, policy, case)
    _mutate(session, case)
    picked: list[str] = []
    if "backfill_pick_order" in case["expect"]:
        picked = [task.key for task in pick(session)]
    else:
        for action in case["actions"]:
            ACTIONS[action].run(session)
    return _compare(session, case, picked)


def _mutate(session: Session, case: Case) -> None:
    for need in case["needs"]:
        if "gets NominatedHyperNode" in need:
            job = session.job("c1/pg1")
            assert job is not None
            job.default_sub_job().nominated_domain = "<cluster-top-hypernode>"
        if "pipelined_before" in need:
            statement = session.statement()
            for key in case.get("pipelined_before") or ():
                statement.pipeline(session.state.tasks[key], session.state.nodes.row("node1"))
            session.promised.append(statement)


def _compare(session: Session, case: Case, picked: list[str]) -> list[Difference]:
    expect, state = case["expect"], session.state
    differences: list[Difference] = []

    def check(what: str, expected: Any, got: Any) -> None:
        if expected != got:
            differences.append(Difference(what, expected, got))

    if "backfill_pick_order" in expect:
        check("backfill_pick_order", expect["backfill_pick_order"], picked)
        return differences
    bound = session.decisions.bound()
    if expect.get("bind_nums_in_hypernode"):
        check(
            "bind_nums_in_hypernode", expect["bind_nums_in_hypernode"], _by_hyper_node(case, bound)
        )
        return differences
    if expect.get("bind") is not None and not expect.get("minimal_bind_check"):
        check("bind", expect["bind"], bound)
    check("bind_count", expect.get("bind_count", len(bound)), len(bound))
    evicted = [one.pod for one in session.decisions.evictions]
    if not expect.get("minimal_bind_check"):
        check("evicted", Counter(expect.get("evicted") or ()), Counter(evicted))
    check("evict_count", expect.get("evict_count", len(evicted)), len(evicted))
    pipelined = _pipelined(session)
    for job, nodes in (expect.get("pipelined") or {}).items():
        mine = pipelined.get(job, set())
        if not mine or not mine <= set(nodes):
            differences.append(Difference(f"pipelined of {job}", nodes, sorted(mine)))
    for key, phase in (expect.get("podgroup_phase") or {}).items():
        found = session.job(key)
        check(f"phase of {key}", phase, None if found is None else phase_of(found, session.uid))
    for key, counts in (expect.get("task_status_counts") or {}).items():
        found = session.job(key)
        got = (
            {}
            if found is None
            else {name.value: len(of) for name, of in found.counts.statuses.items() if of}
        )
        check(f"statuses of {key}", counts, got)
    for key, allocated in (expect.get("allocated_by_podgroup_name") or {}).items():
        found = next((job for job in state.jobs.values() if job.name == key), None)
        check(
            f"allocated of {key}",
            _plain(allocated),
            None if found is None else _plain(_amounts(found.allocated)),
        )
    check_invariants(session, differences)
    close_session(session)
    return differences


def check_invariants(session: Session, differences: list[Difference]) -> None:
    """Whatever a case asks: no bind puts more on a node than it has, and what is bound keeps to its
    hard topology."""
    nodes = session.state.nodes
    placed = {session.state.nodes.rows[bind.node] for bind in session.decisions.binds}
    for row in placed:
        over = nodes.used[:, row] > nodes.allocatable[:, row] + 0.1
        if over.any():
            differences.append(Difference(f"room on {nodes.names[row]}", "held", "overfull"))
    bound_jobs = {bind.job for bind in session.decisions.binds}
    for job in session.jobs():
        for group in (job, *job.sub_jobs.values()) if job.key in bound_jobs else ():
            topology = group.effective
            if topology is None or not topology.hard or topology.highest_tier is None:
                continue
            rows = [
                task.row
                for task in group.tasks.values()
                if is_allocated(task.status) and nodes.ready[task.row]
            ]
            tier = session.tree.tier_of(session.tree.smallest_holding(rows))
            if rows and tier > topology.highest_tier:
                differences.append(
                    Difference(f"tier of {group.uid}", f"at most {topology.highest_tier}", tier)
                )


def _pipelined(session: Session) -> dict[str, set[str]]:
    result: dict[str, set[str]] = {}
    for job in session.jobs():
        nodes = {
            session.state.nodes.names[task.row]
            for task in job.counts.statuses[Status.PIPELINED].values()
        }
        if nodes:
            result[job.key] = nodes
    return result


def _by_hyper_node(case: Case, bound: Mapping[str, str]) -> list[int]:
    tiers: Mapping[str, Any] = case["knobs"]["hypernodes_by_tier"]
    lowest = tiers[min(tiers, key=int)]
    members = case["knobs"]["hypernode_real_nodes"]
    counts = [sum(1 for node in bound.values() if node in members[name]) for name in lowest]
    return sorted(count for count in counts if count)


def _amounts(of: Mapping[str, float]) -> dict[str, float]:
    return {"milli_cpu" if name == "cpu" else name: value for name, value in of.items()}


def _plain(of: Mapping[str, Any]) -> dict[str, float]:
    """Amounts under plain names, also from the form in which upstream prints its own."""
    if "MilliCPU" in of:
        of = {
            "milli_cpu": of["MilliCPU"],
            "memory": of.get("Memory", 0),
            **(of.get("ScalarResources") or {}),
        }
    return {name: float(value) for name, value in of.items() if value and name != "pods"}


def run_multi_session(case: Case) -> list[Difference]:
    """Objects join a running cluster; each step is a session of its own."""
    state = state_of(case)
    differences: list[Difference] = []
    every = [action for step in case["steps"] for action in step["actions"]]
    for number, step in enumerate(case["steps"]):
        feed(state, step.get("add_objects") or {}, case["knobs"])
        policy = policy_of(case, list(dict.fromkeys(every)))
        session = open_case(state, policy, case)
        for action in step["actions"]:
            ACTIONS[action].run(session)
        bound = set(session.decisions.bound())
        close_session(session)
        expected = set(step["expect"].get("bound_pods") or ())
        if bound != expected:
            differences.append(Difference(f"step {number}: bound", sorted(expected), sorted(bound)))
    return differences
