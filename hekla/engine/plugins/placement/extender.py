"""extender: hooks answered by somebody else, over HTTP.  Reference: plugins-placement 12.

The engine does no I/O: whoever runs it hands in `State.ask_extender`, which posts JSON to an
address and gives the JSON of the reply. Without it every question fails, as if the extender did not
answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from hekla.api.trees import Json, Tree
from hekla.engine.framework.plugin import (
    ABSTAIN,
    PERMIT,
    REJECT,
    Arguments,
    Code,
    Depends,
    Filter,
    Mask,
    Plugin,
    Reads,
    Score,
    Victims,
)
from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import CPU, MEMORY, Amounts, Floats
from hekla.engine.model.tasks import Status
from hekla.engine.model.time.durations import seconds

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.queues.queues import Queue
    from hekla.engine.model.tasks import Job, Task

_BITS = {
    Status.PENDING: 1,
    Status.ALLOCATED: 2,
    Status.PIPELINED: 4,
    Status.BINDING: 8,
    Status.BOUND: 16,
    Status.RUNNING: 32,
    Status.RELEASING: 64,
    Status.SUCCEEDED: 128,
    Status.FAILED: 256,
    Status.UNKNOWN: 512,
}


class ExtenderArguments(Arguments, frozen=True):
    url: str = msgspec.field(default="", name="extender.urlPrefix")
    timeout: str = msgspec.field(default="1s", name="extender.httpTimeout")
    opened: str = msgspec.field(default="", name="extender.onSessionOpenVerb")
    closed: str = msgspec.field(default="", name="extender.onSessionCloseVerb")
    predicate: str = msgspec.field(default="", name="extender.predicateVerb")
    prioritize: str = msgspec.field(default="", name="extender.prioritizeVerb")
    preemptable: str = msgspec.field(default="", name="extender.preemptableVerb")
    reclaimable: str = msgspec.field(default="", name="extender.reclaimableVerb")
    overused: str = msgspec.field(default="", name="extender.queueOverusedVerb")
    enqueueable: str = msgspec.field(default="", name="extender.jobEnqueueableVerb")
    enqueued: str = msgspec.field(default="", name="extender.jobEnqueuedVerb")
    ready: str = msgspec.field(default="", name="extender.jobReadyVerb")
    allocate: str = msgspec.field(default="", name="extender.allocateFuncVerb")
    deallocate: str = msgspec.field(default="", name="extender.deallocateFuncVerb")
    ignorable: bool = msgspec.field(default=False, name="extender.ignorable")
    managed: list[str] = msgspec.field(default=[], name="extender.managedResources")

    def extended(self, rest: Tree) -> ExtenderArguments:
        seconds(self.timeout)
        return self


class NoAnswer(Exception):
    """The extender could not be asked, or its reply makes no sense."""


class Extender(Plugin):
    """Each hook whose verb is set asks; without its verb it has no opinion."""

    name = "extender"
    Arguments = ExtenderArguments
    arguments: ExtenderArguments

    def __init__(self, arguments: ExtenderArguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        asked = arguments.predicate or arguments.prioritize
        told = arguments.allocate or arguments.deallocate
        self.reads = Reads(each_pod=bool(asked or told))

    def open(self, session: CycleView) -> None:
        self.session = session
        self.timeout = _patience(self.arguments.timeout)
        self._verdicts: dict[tuple[str, int, int], tuple[str, int]] = {}
        self.on = True
        if self.arguments.opened:
            state = session.state
            body = {
                "Jobs": {job.key: _job(job) for job in session.jobs()},
                "Nodes": {name: _node(state.nodes, row) for name, row in state.nodes.rows.items()},
                "Queues": {queue.name: _queue(queue) for queue in state.queues.values()},
                "NamespaceInfo": {},
                "RevocableNodes": {},
                "NodeList": None,
            }
            self.on = self._tell(self.arguments.opened, body) or self.arguments.ignorable

    def close(self, session: CycleView) -> None:
        if self.arguments.closed:
            self._tell(self.arguments.closed, {})

    def _ask(self, verb: str, body: Tree) -> Tree:
        """The reply.  Raises NoAnswer."""
        ask = self.session.state.ask_extender
        if ask is None:
            raise NoAnswer("nobody is there to ask the extender")
        try:
            reply = ask(f"{self.arguments.url.rstrip('/')}/{verb}", body, self.timeout)
        except (OSError, ValueError) as error:
            raise NoAnswer(str(error)) from error
        if not isinstance(reply, Mapping):
            raise NoAnswer(f"{verb}: the reply is no object")
        return reply

    def _tell(self, verb: str, body: Tree) -> bool:
        """Ask where the reply does not matter; whether there was one."""
        ask = self.session.state.ask_extender
        try:
            if ask is None:
                raise NoAnswer("nobody is there to ask the extender")
            ask(f"{self.arguments.url.rstrip('/')}/{verb}", body, self.timeout)
        except json.JSONDecodeError:
            return True  # It was heard; what it says does not matter.
        except (OSError, ValueError, NoAnswer) as error:
            self.session.decisions.problems.append(f"extender {verb}: {error}")
            return False
        return True

    def interested(self, pods: PodClass) -> bool:
        """Whether a pod mentions a managed resource, be it with none of it; without a list, always."""
        return not self.arguments.managed or any(
            amounts.get(name, 0.0) > 0
            or (name in amounts and name not in (CPU, MEMORY))  # these two are in every list
            for one in (*pods.containers, *pods.init_containers)
            for amounts in (one.limits, one.requests)
            for name in self.arguments.managed
        )

    # ---------------------------------------------------------------------------------------- nodes

    def filters(self) -> Iterable[Filter]:
        if self.arguments.predicate:
            for code in (Code.UNSCHEDULABLE, Code.UNRESOLVABLE):
                yield Filter(
                    f"extender {code.name.lower()}",
                    "refused by the extender",
                    code,
                    Depends.CLUSTER,
                    self._mask_of(code),
                    "",
                    lambda pods, row: self._last.get(row, "refused by the extender"),
                )

    def _mask_of(self, code: Code) -> Mask:
        def mask(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
            if task is None or not self.on or not self.interested(pods):
                return None
            self._last: dict[int, str] = {}
            rows = range(len(nodes)) if nodes.rows is None else nodes.rows.tolist()
            result = np.ones(len(nodes), dtype=np.bool_)
            for at, row in enumerate(rows):
                message, said = self._verdict(task, nodes.table, row)
                final = said != Code.UNSCHEDULABLE
                if message and final == (code is Code.UNRESOLVABLE):
                    result[at] = False
                    self._last[row] = message
            return result

        return mask

    def _verdict(self, task: Task, table: NodeTable, row: int) -> tuple[str, int]:
        """Why a task may not go to a node (empty: it may), and the code of that."""
        key = task.key, row, int(table.stamps[row])
        if key not in self._verdicts:
            try:
                reply = self._ask(
                    self.arguments.predicate,
                    {"task": _task(task, table), "node": _node(table, row)},
                )
                verdict = str(reply.get("status") or ""), int(reply.get("code") or 0)
            except (NoAnswer, TypeError, ValueError) as error:
                verdict = ("", 0) if self.arguments.ignorable else (str(error), 1)
            self._verdicts[key] = verdict
        return self._verdicts[key]

    def scores(self) -> Iterable[Score]:
        if self.arguments.prioritize:
            yield Score("extender", 1.0, Depends.CLUSTER, self._score)

    def _score(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        if task is None or not self.on or not self.interested(pods):
            return None
        rows = list(range(len(nodes))) if nodes.rows is None else nodes.rows.tolist()
        if not rows:
            return np.zeros(0)
        table = nodes.table
        body = {"task": _task(task, table), "nodes": [_node(table, row) for row in rows]}
        try:
            reply = self._ask(self.arguments.prioritize, body)
        except NoAnswer as error:
            self.session.decisions.problems.append(f"extender {self.arguments.prioritize}: {error}")
            return None if self.arguments.ignorable else np.full(len(rows), -np.inf)
        scores = reply.get("nodeScore")
        if reply.get("errorMessage") or not isinstance(scores, Mapping):
            self.session.decisions.problems.append(
                f"extender {self.arguments.prioritize}: {reply.get('errorMessage')}"
            )
            return np.full(len(rows), -np.inf)
        return np.array([float(scores.get(table.names[row], 0.0)) for row in rows])

    # -------------------------------------------------------------------------------------- victims

    def preemptable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        return self._victims(self.arguments.preemptable, preemptor, candidates)

    def reclaimable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        return self._victims(self.arguments.reclaimable, preemptor, candidates)

    def _victims(self, verb: str, preemptor: Task, candidates: list[Task]) -> Victims:
        if not verb or not self.on or not self.interested(preemptor.pods):
            return Victims([], ABSTAIN)
        nodes = self.session.state.nodes
        body = {
            "evictor": _task(preemptor, nodes),
            "evictees": [_task(one, nodes) for one in candidates],
        }
        try:
            reply = self._ask(verb, body)
            named = {str(one.get("UID", "")) for one in reply.get("victims") or ()}
            return Victims([one for one in candidates if one.uid in named], _vote(reply))
        except (NoAnswer, AttributeError, TypeError):
            return Victims([], PERMIT if self.arguments.ignorable else REJECT)

    # ------------------------------------------------------------------------------ jobs and queues

    def job_enqueueable(self, job: Job) -> int:
        if not self.arguments.enqueueable or not self.on:
            return ABSTAIN
        try:
            return _vote(self._ask(self.arguments.enqueueable, {"job": _job(job)}))
        except NoAnswer:
            return PERMIT if self.arguments.ignorable else REJECT

    def job_enqueued(self, job: Job) -> None:
        if self.arguments.enqueued and self.on:
            self._tell(self.arguments.enqueued, {"job": _job(job)})

    def overused(self, queue: Queue) -> bool:
        if not self.arguments.overused or not self.on:
            return False
        try:
            return bool(
                self._ask(self.arguments.overused, {"queue": _queue(queue)}).get("overused")
            )
        except NoAnswer:
            return not self.arguments.ignorable

    def job_ready(self, job: Job) -> bool:
        if not self.arguments.ready or not self.on:
            return True
        try:
            return bool(self._ask(self.arguments.ready, {"job": _job(job)}).get("status"))
        except NoAnswer:
            return not self.arguments.ignorable

    def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        self._follow(self.arguments.allocate, task)

    def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
        self._follow(self.arguments.deallocate, task)

    def _follow(self, verb: str, task: Task) -> None:
        """Say what happened to a pod.  Unlike upstream, an objection undoes nothing; it is written
        down."""
        if not verb or not self.on or not self.interested(task.pods):
            return
        try:
            said = str(
                self._ask(verb, {"task": _task(task, self.session.state.nodes)}).get("errorMessage")
                or ""
            )
        except NoAnswer as error:
            said = "" if self.arguments.ignorable else str(error)
        if said:
            self.session.decisions.problems.append(f"extender {verb} of {task.key}: {said}")


def _patience(text: str) -> float:
    """Seconds to wait for an answer; one where it cannot be read."""
    try:
        return seconds(text)
    except ValueError:
        return 1.0


def _vote(reply: Tree) -> int:
    status = reply.get("status")
    return status if status in (PERMIT, ABSTAIN, REJECT) else ABSTAIN


def _resource(amounts: Mapping[str, float]) -> Json:
    rest = {name: value for name, value in amounts.items() if name not in (CPU, MEMORY)}
    return {
        "MilliCPU": amounts.get(CPU, 0.0),
        "Memory": amounts.get(MEMORY, 0.0),
        "ScalarResources": rest,
    }


def _task(task: Task, nodes: NodeTable) -> Json:
    return {
        "UID": task.uid,
        "Job": task.job.key if task.job is not None else "",
        "Name": task.name,
        "Namespace": task.namespace,
        "TaskRole": task.role,
        "Resreq": _resource(task.request.amounts),
        "NodeName": nodes.names[task.row] if task.row >= 0 else "",
        "Status": _BITS[task.status],
        "Priority": task.priority,
        "BestEffort": task.best_effort,
        "Pod": {
            "metadata": {
                "name": task.name,
                "namespace": task.namespace,
                "uid": task.uid,
                "labels": dict(task.labels.labels),
                "annotations": dict(task.annotations),
            },
        },
    }


def _node(nodes: NodeTable, row: int) -> Json:
    facts = nodes.facts[row]
    return {
        "Name": nodes.names[row],
        "Node": {
            "metadata": {
                "name": nodes.names[row],
                "labels": dict(facts.labels) if facts is not None else {},
            }
        },
        "Idle": _resource(nodes.idle_of(row)),
        "Used": _resource(nodes.space.amounts(nodes.used[:, row])),
        "Releasing": _resource(nodes.space.amounts(nodes.releasing[:, row])),
        "Allocatable": _resource(nodes.space.amounts(nodes.allocatable[:, row])),
        "Tasks": {task.uid: _task(task, nodes) for task in nodes.tasks[row].values()},
    }


def _job(job: Job) -> Json:
    return {
        "UID": job.key,
        "PgUID": job.pg_uid,
        "Name": job.name,
        "Namespace": job.namespace,
        "Queue": job.queue,
        "Priority": job.priority,
        "MinAvailable": job.min_available,
        "Allocated": _resource(job.allocated),
    }


def _queue(queue: Queue) -> Json:
    return {
        "UID": queue.name,
        "Name": queue.name,
        "Weight": queue.weight,
        "Allocated": _resource(queue.allocated),
    }
