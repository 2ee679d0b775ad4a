"""What a PodGroup, a pod, a queue or a budget asks for and no plugin of the policy answers: it is
told so.

A PodGroup keeps it as its condition `Ignored`, so that nobody is told twice, whatever is started
anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from hekla.api.bounded import BoundedCache
from hekla.api.names import IGNORED
from hekla.engine.model import reading
from hekla.engine.model.annotations import (
    AFFINITY,
    ANTI_AFFINITY,
    COOLDOWN,
    EVICTION_GRACE,
    EVICTION_NOTICE,
    EVICTION_RATE,
    LAST_CHECKPOINT,
    MAX_UNAVAILABLE,
    MIN_AVAILABLE,
    MIN_RUNTIME,
    NUMA_POLICY,
    RESTART_COST,
    SEMI_PREEMPTIBLE,
    TASK_ORDER,
    TRAFFIC,
    TYPE_ANNOTATION,
    WEIGHT_ANNOTATION,
)
from hekla.engine.model.devices import gpushare, vgpu
from hekla.engine.model.queues.queues import ROOT, Queue
from hekla.engine.model.tasks import Job, Task

if TYPE_CHECKING:
    from hekla.engine.framework.hooks import Hooks
    from hekla.engine.framework.session import Session
    from hekla.engine.model.podclass import PodClass

T = TypeVar("T", Job, Task, Queue)
EVICTING = ("preempt", "reclaim", "shuffle")
"""Actions that ask `pdb` whom they may evict."""


CALM = (
    MIN_RUNTIME,
    RESTART_COST,
    LAST_CHECKPOINT,
    SEMI_PREEMPTIBLE,
    EVICTION_NOTICE,
    EVICTION_GRACE,
)


class Field(NamedTuple, Generic[T]):
    """Something that can be asked for, and the plugins of which one has to be loaded."""

    name: str
    plugins: tuple[str, ...]
    asked: Callable[[T], bool]
    hook: str = ""
    """A plugin that fills this hook answers, too."""
    flag: str = ""
    """Which has to be on for the plugin to answer."""


def _annotated(name: str, *plugins: str) -> Field[Job]:
    return Field(name, plugins, lambda one: bool(one.annotations.get(name)))


def _of_queue(name: str, *plugins: str) -> Field[Queue]:
    return Field(name, plugins, lambda queue: name in queue.annotations)


def _of_class(name: str, *plugins: str) -> Field[Task]:
    return Field(
        name,
        plugins,
        lambda task: bool(task.pods.annotations.get(name) or task.labels.labels.get(name)),
    )


def _device(name: str) -> Field[Task]:
    return Field(name, ("deviceshare",), lambda task: task.request.amounts.get(name, 0.0) > 0)


OF_JOBS: tuple[Field[Job], ...] = (
    Field("networkTopology", ("network-topology-aware",), lambda job: job.has_topology, hook="hyper_node_gradient"),
    Field("minMember", ("gang",), lambda job: job.min_available > 1, hook="job_ready"),
    Field("minTaskMember", ("gang",), lambda job: bool(job.role_minimums), hook="job_ready"),
    Field("priorityClassName", ("priority",), lambda job: bool(job.priority_class) and not job.shadow),
    *(_annotated(name, "task-topology") for name in (AFFINITY, ANTI_AFFINITY, TASK_ORDER)),
    *(_annotated(name, "sla") for name in reading.SLA_KEYS),
    *(_annotated(name, "tdm") for name in (reading.REVOCABLE_ZONE, MIN_AVAILABLE, MAX_UNAVAILABLE)),
    _annotated(TRAFFIC, "io-aware"),
    *(_annotated(name, "calm-eviction") for name in CALM),
)  # fmt: skip
OF_PODS: tuple[Field[Task], ...] = (
    _of_class(NUMA_POLICY, "numa-aware"),
    _of_class(COOLDOWN, "cdp"),
    _of_class(reading.REVOCABLE_ZONE, "tdm"),
    _of_class(TYPE_ANNOTATION, "resource-strategy-fit"),
    _of_class(WEIGHT_ANNOTATION, "resource-strategy-fit"),
    *(
        _device(name)
        for name in (vgpu.NUMBER, vgpu.MEMORY, vgpu.CORES, gpushare.MEMORY, gpushare.NUMBER)
    ),
)
OF_QUEUES: tuple[Field[Queue], ...] = (
    *(_of_queue(name, "calm-eviction") for name in (MIN_RUNTIME, EVICTION_RATE)),
    Field("spec.affinity", ("nodegroup",), lambda queue: bool(queue.affinity)),
    Field("spec.deserved", ("capacity",), lambda queue: any(queue.deserved.values())),
    Field(
        "spec.guarantee", ("capacity", "proportion"), lambda queue: any(queue.guarantee.values())
    ),
    Field(
        "spec.capability", ("capacity", "proportion"), lambda queue: any(queue.capability.values())
    ),
    Field(
        "spec.parent",
        ("capacity",),
        lambda queue: queue.parent not in ("", ROOT),
        flag="enableHierarchy",
    ),
)


ANNOTATIONS = frozenset(
    {
        AFFINITY,
        ANTI_AFFINITY,
        TASK_ORDER,
        *reading.SLA_KEYS,
        reading.REVOCABLE_ZONE,
        MIN_AVAILABLE,
        MAX_UNAVAILABLE,
        TRAFFIC,
        *CALM,
    }
)
"""Those of `OF_JOBS` that are annotations."""
MOST_CLASSES = 4096


class Unanswered:
    """The fields that the policy has no plugin for."""

    def __init__(self, hooks: Hooks) -> None:
        self.of_jobs = [field for field in OF_JOBS if not _answers(hooks, field)]
        self.of_pods = [field for field in OF_PODS if not _answers(hooks, field)]
        self.of_queues = [field for field in OF_QUEUES if not _answers(hooks, field)]
        names = {plugin.name for plugin in hooks.plugins}
        self.budgets = "pdb" not in names and any(
            action in hooks.policy.actions for action in EVICTING
        )
        self.annotations = frozenset(
            field.name for field in self.of_jobs if field.name in ANNOTATIONS
        )
        self.others = [field for field in self.of_jobs if field.name not in ANNOTATIONS]
        self.classes: BoundedCache[PodClass, bool] = BoundedCache(MOST_CLASSES)
        """Whether pods of a class may ask for something in vain, their labels apart."""
        self.labels = frozenset(field.name for field in self.of_pods)
        self.told: dict[str, Queue] = {}
        """Queues as they were told last; one that changes comes as another object."""

    def of_job(self, job: Job) -> str:
        """As a sentence, what the job and its pods ask for in vain; worked out again only once they
        are others."""
        tasks = len(job.tasks)
        known: tuple[int, Unanswered, object, int, str] | None = job.plugin_state.get(IGNORED)
        if (
            known is None
            or known[0] != tasks
            or known[1] is not self
            or known[2] is not job.annotations
        ):
            known = job.plugin_state[IGNORED] = (
                tasks,
                self,
                job.annotations,
                job.min_available,
                self._of_job(job),
            )
        return known[4]

    def _of_job(self, job: Job) -> str:
        """Most jobs ask for nothing of the kind, which is found out at little cost: thousands come
        in one cycle."""
        found: list[Field[Job] | Field[Task]] = []
        if (job.annotations and not self.annotations.isdisjoint(job.annotations)) or any(
            field.asked(job) for field in self.others
        ):
            found += [field for field in self.of_jobs if field.asked(job)]
        if self.of_pods:
            asking: dict[tuple[int, int], Task] = {}
            for task in job.tasks.values():
                labels = task.labels.labels
                if self._may_ask(task) or (labels and not self.labels.isdisjoint(labels)):
                    asking[id(task.pods), id(task.labels)] = task
            found += (
                [
                    field
                    for field in self.of_pods
                    if any(field.asked(task) for task in asking.values())
                ]
                if asking
                else []
            )
        return _said(found) if found else ""

    def _may_ask(self, task: Task) -> bool:
        known = self.classes.get(task.pods)
        if known is None:
            known = self.classes[task.pods] = any(field.asked(task) for field in self.of_pods)
        return known

    def alike(self, other: Unanswered) -> bool:
        """Whether both policies leave the same fields of jobs and pods without an answer."""
        return self.of_jobs == other.of_jobs and self.of_pods == other.of_pods

    def of_queue(self, queue: Queue) -> str:
        return _said([field for field in self.of_queues if field.asked(queue)])


def _answers(hooks: Hooks, field: Field[T]) -> bool:
    if field.hook and hooks(field.hook):
        return True
    return any(
        plugin.name in field.plugins and (not field.flag or plugin.flags.get(field.flag, False))
        for plugin in hooks.plugins
    )


def _said(fields: Iterable[Field[Job] | Field[Task] | Field[Queue]]) -> str:
    parts = list(
        dict.fromkeys(
            f"{field.name} (plugin {' or '.join(field.plugins)}{f' with {field.flag}' if field.flag else ''})"
            for field in fields
        )
    )
    if not parts:
        return ""
    listed = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"The scheduler ignores {listed}: its policy has no plugin for {'it' if len(parts) == 1 else 'them'}."


def report_unanswered(session: Session) -> None:
    """An event on each queue and budget that asks for what nothing answers, once for the same
    words."""
    unanswered = session.hooks.part(Unanswered)
    if unanswered.of_queues:
        for name, queue in session.state.queues.items():
            if unanswered.told.get(name) is not queue:
                session.warn_once("Queue", name, IGNORED, unanswered.of_queue(queue))
                unanswered.told[name] = queue
    if unanswered.budgets:
        text = f"The scheduler ignores it when it evicts for {', '.join(EVICTING)}: its policy has no plugin pdb."
        for key in session.state.others.get("PodDisruptionBudget", {}):
            session.warn_once("PodDisruptionBudget", key, IGNORED, text)
