"""Runs cases of kind score and call: a session is opened, no action runs, and its functions are
asked one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hekla.engine.framework.plugin import Code
from hekla.engine.framework.session import Session
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.tasks import Job, Task
from hekla.engine.model.time.durations import instant, seconds
from hekla.engine.placement.placer import placer_of
from hekla.engine.placement.scorer import normalised
from tests.conformance.case import Case, Difference, feed, policy_of, state_of
from tests.conformance.sessions import open_case


def run_calls(case: Case) -> list[Difference]:
    """What differed; empty when the case holds."""
    policy = policy_of(case, [])
    state = state_of(case)
    feed(state, case.get("objects") or {}, case["knobs"])
    session = open_case(state, policy, case)
    differences: list[Difference] = []
    tolerance = 0.1 if "network-topology-aware" in case["package"] else 1e-3
    for number, (call, expected) in enumerate(zip(case["calls"], case["expect"]["results"])):
        if not expected:
            _Caller(session, case).make(call)
            continue
        got = _Caller(session, case).make(call)
        for key, value in expected.items():
            if not _same(value, got.get(key), tolerance):
                differences.append(
                    Difference(
                        f"call {number} {call['fn']} {_about(call)}: {key}", value, got.get(key)
                    )
                )
    return differences


def _about(call: Mapping[str, Any]) -> str:
    return " ".join(str(call[key]) for key in ("pod", "node", "job") if key in call)


def _same(expected: Any, got: Any, tolerance: float) -> bool:
    if isinstance(expected, bool) or isinstance(got, bool) or got is None:
        return bool(expected == got)
    if isinstance(expected, int | float) and isinstance(got, int | float):
        return abs(expected - got) <= tolerance
    if isinstance(expected, dict) and isinstance(got, dict):
        return set(expected) == set(got) and all(
            _same(value, got[key], tolerance) for key, value in expected.items()
        )
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(
            _same(left, right, tolerance) for left, right in zip(expected, got)
        )
    return bool(expected == got)


class _Caller:
    def __init__(self, session: Session, case: Case) -> None:
        self.session = session
        self.case = case

    def make(self, call: Mapping[str, Any]) -> dict[str, Any]:
        result: dict[str, Any] = getattr(self, "_" + str(call["fn"]))(call)
        return result

    def _task(self, call: Mapping[str, Any]) -> Task:
        task = self.session.state.tasks[call["pod"]]
        if "job_allocated_hypernode" in call:
            task.allocated_domain = call["job_allocated_hypernode"]
        return task

    def _NodeOrderFn(self, call: Mapping[str, Any]) -> dict[str, Any]:
        task = self._task(call)
        view = NodeView(
            self.session.state.nodes, np.array([self.session.state.nodes.rows[call["node"]]])
        )
        total = 0.0
        for _, score in placer_of(self.session).scores.by_plugin:
            if score.batch:
                continue
            raw = score.raw(task.pods, view, task)
            if raw is not None:
                total += score.weight * float(raw[0])
        return {"score": total}

    def _BatchNodeOrderFn(self, call: Mapping[str, Any]) -> dict[str, Any]:
        task, names = self._task(call), call["nodes"]
        rows = np.array([self.session.state.nodes.rows[name] for name in names])
        view = NodeView(self.session.state.nodes, rows)
        total = np.zeros(len(rows))
        spoke = False
        for _, score in placer_of(self.session).scores.by_plugin:
            raw = score.raw(task.pods, view, task) if score.batch else None
            if raw is not None:
                spoke = True
                total += score.weight * normalised(raw, score.normalise)
        return {"scores": dict(zip(names, total.tolist())) if spoke else {}}

    def _HyperNodeOrderMapFn(self, call: Mapping[str, Any]) -> dict[str, Any]:
        sub_job = next(
            sub
            for job in self.session.jobs()
            for sub in job.sub_jobs.values()
            if sub.uid == call["subjob"]
        )
        scores = {
            plugin.name: plugin.hyper_node_order(sub_job, list(call["hypernodes"]))
            for plugin in self.session.hooks("hyper_node_order")
        }
        return {"scores": scores}

    def _PredicateFn(self, call: Mapping[str, Any]) -> dict[str, Any]:
        task = self._task(call)
        row = self.session.state.nodes.rows[call["node"]]
        view = NodeView(self.session.state.nodes, np.array([row]))
        statuses: list[dict[str, Any]] = []
        for _, filters in placer_of(self.session).filters.by_plugin:
            refused: set[str] = set()
            for one in filters:
                passed = one.mask(task.pods, view, task)
                if passed is None or passed[0]:
                    continue
                refused.add(one.name)
                if one.silent_after in refused:
                    continue
                reason = one.reason if one.detail is None else one.detail(task.pods, row)
                statuses.append({"code": int(one.code), "reason": reason, "plugin": one.plugin})
                if one.code is Code.UNRESOLVABLE:
                    break
            if statuses:
                return {"fits": False, "status": statuses}
        return {"fits": True}

    def _tasks(self, call: Mapping[str, Any]) -> list[Task]:
        """Candidates of the session, or made from the pods that the call brings along, in its
        order."""
        state = self.session.state
        extra = list(call.get("extra_pods") or ())
        if not extra:
            return [state.tasks[key] for key in call["candidates"]]
        made: list[Task] = []
        for tree in extra:
            task = state.pods.read(tree)
            group = (tree["metadata"].get("annotations") or {}).get("scheduling.k8s.io/group-name")
            task.job = state.jobs.get(f"{task.namespace}/{group}") if group else None
            made.append(task)
        return made

    def _claimer(self, call: Mapping[str, Any]) -> Task:
        found = self.session.state.tasks.get(call.get("claimer", "/"))
        return found or self.session.state.pods.read({"metadata": {"name": "claimer"}})

    def _victims(self, call: Mapping[str, Any], victims: Sequence[Task]) -> dict[str, Any]:
        keys = [task.key for task in victims]
        return {"result": keys, "result_count": len(keys)}

    def _Preemptable(self, call: Mapping[str, Any]) -> dict[str, Any]:
        return self._victims(
            call, self.session.votes.preemptable(self._claimer(call), self._tasks(call))
        )

    def _Reclaimable(self, call: Mapping[str, Any]) -> dict[str, Any]:
        return self._victims(
            call, self.session.votes.reclaimable(self._claimer(call), self._tasks(call))
        )

    def _VictimTasks(self, call: Mapping[str, Any]) -> dict[str, Any]:
        return self._victims(call, self.session.votes.victim_tasks(self._tasks(call)))

    def _UnifiedEvictable(self, call: Mapping[str, Any]) -> dict[str, Any]:
        job = Job(f"none/{call['for_job']['uid']}")
        job.priority = call["for_job"].get("priority", 0)
        kind = str(call["eviction_kind"]).lower()
        return self._victims(call, self.session.votes.evictable(kind, job, self._tasks(call)))

    def _job(self, tree: Mapping[str, Any]) -> Job:
        found = self.session.job(
            tree.get("uid") or f"{tree.get('namespace', '')}/{tree.get('name', '')}"
        )
        if found is not None:
            return found
        job = Job(f"{tree.get('namespace', '')}/{tree.get('name', '')}")
        if tree.get("waiting_time"):
            job.waiting_time = seconds(tree["waiting_time"])
        job.creation = instant(tree.get("creation_timestamp", ""))
        return job

    def _JobEnqueueable(self, call: Mapping[str, Any]) -> dict[str, Any]:
        return {"result": self.session.votes.job_enqueueable(self._job(call["job"]))}

    def _JobEnqueued(self, call: Mapping[str, Any]) -> dict[str, Any]:
        self.session.votes.job_enqueued(self._job(call["job"]))
        return {}

    def _Allocate(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """A pod takes a node between two questions, and is bound where its job is ready then."""
        self.session.allocate_now(self._task(call), self.session.state.nodes.rows[call["node"]])
        return {}

    def _JobOrderFn(self, call: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "result": self.session.order.job_key(self._job(call["left"]))
            < self.session.order.job_key(self._job(call["right"]))
        }
