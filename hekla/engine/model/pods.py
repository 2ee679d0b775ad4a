"""The pods that are on nodes, or for this scheduler to place, as tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from sys import intern

from hekla.api.bounded import BoundedCache
from hekla.api.names import GROUP_QUEUE_NAME, bare_pod_group_name
from hekla.api.trees import Tree
from hekla.engine.model import resources
from hekla.engine.model.evictions.notices import EVICT_AT, EvictionNotices
from hekla.engine.model.fragmentation.mix import ShapeMix
from hekla.engine.model.jobs import JobTable
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.podclass import LabelSet, Minimum, PodClass, PodClasses, TermTable
from hekla.engine.model.reading import (
    GROUP_NAME,
    PREEMPTABLE,
    TASK_SPEC,
    TRUE,
    claim_keys,
    claims_to_come,
    condition_of,
    key_of,
    pod_index,
    pod_stated_by,
    priority_of,
    resized,
    revocable_zone,
    scheduled_at,
    status_of,
    texts,
)
from hekla.engine.model.spread_peers import owner_of
from hekla.engine.model.tasks import FINISHED, HOLDS, NOWHERE, Job, Status, Task, is_allocated
from hekla.engine.model.time.durations import instant
from hekla.engine.model.time.runs import ended_at
from hekla.engine.model.time.walltimes import pod_walltime
from hekla.engine.model.transfers import Transfers
from hekla.podrules.plain_pods import stands_alone
from hekla.podrules.usage import pod_usage

NO_MINIMUM = Minimum({}, resources.amounts({}))
MOST_TEMPLATES = 1024


@dataclass(slots=True)
class Template:
    """What the engine keeps of pods that say the same but for their names, their age and how far
    they have come.  Its parts are theirs: nobody may change them."""

    stated: bytes
    """Digest of what they say; empty where none can be taken."""
    pods: PodClass
    labels: LabelSet
    annotations: Mapping[str, str]
    role: str
    priority: int
    pod_priority: int
    priority_class: str
    preemptable: bool
    revocable_zone: str
    walltime: float | None
    gated: tuple[str, ...]


class PodTable:
    """Tasks by the key of their pod, kept on their nodes and in their jobs.

    `scheduler_names`: whose unassigned pods are read; None means everybody's.  `bare_pod_schedulers`:
    names whose pods need no PodGroup.  `implied_groups`: whether a pod that stands alone needs none
    either; `queue_of` gives the queue of such a pod of a namespace.
    """

    def __init__(
        self,
        nodes: NodeTable,
        jobs: JobTable,
        classes: PodClasses,
        terms: TermTable,
        imply_claims: Callable[[Task, Tree, Tree], None],
        transfers: Transfers,
        notices: EvictionNotices,
        scheduler_names: frozenset[str] | None,
        bare_pod_schedulers: frozenset[str],
        default_queue: str,
        implied_groups: bool,
        queue_of: Callable[[str], str],
    ) -> None:
        self.by_key: dict[str, Task] = {}
        self.nodes = nodes
        self.jobs = jobs
        self.classes = classes
        self.terms = terms
        self.templates: BoundedCache[bytes, Template] = BoundedCache(MOST_TEMPLATES)
        """By the digest of what pods say: most pods come with others of their template."""
        self.imply_claims = imply_claims
        """Told of a task with resource claims, and of its spec and status."""
        self.transfers = transfers
        self.notices = notices
        self.scheduler_names = scheduler_names
        self.bare_pod_schedulers = bare_pod_schedulers
        self.default_queue = default_queue
        self.implying = (
            (scheduler_names or frozenset()) - bare_pod_schedulers
            if implied_groups
            else frozenset[str]()
        )
        """Schedulers whose pods are groups of one where they stand alone."""
        self.queue_of = queue_of
        self.mix: ShapeMix | None = None
        """Told of every pod that comes, once somebody wants to know."""

    def upsert(self, tree: Tree) -> bool:
        """A pod came or changed: whether anything moved.  Raises ValueError and the like for a pod
        that cannot be understood."""
        meta, spec = tree.get("metadata") or {}, tree.get("spec") or {}
        key = key_of(tree)
        old = self.by_key.get(key)
        node = spec.get("nodeName") or ""
        if type(node) is not str:
            raise ValueError(f"spec.nodeName is {node!r}, not a text")
        scheduler = spec.get("schedulerName", "")
        ours = (
            self.scheduler_names is None
            or scheduler in self.scheduler_names
            or scheduler in self.bare_pod_schedulers
        )
        if not node and not ours:
            return old is not None and self.remove(key)
        if (
            old is not None
            and old.uid == meta.get("uid", "")
            and not node
            and is_allocated(old.status)
        ):
            return False  # Our bind is on its way; the pod without a node is the past.
        if (
            old is not None
            and node
            and self._read_on(old, node, meta, spec, tree.get("status") or {})
        ):
            return True
        task = self.read(tree)
        if EVICT_AT in task.annotations or self.notices.read or self.notices.taken_back:
            self.notices.pod_read(key, task.uid, task.annotations)
        if (
            old is not None
            and old.uid == task.uid
            and old.status is Status.RELEASING
            and is_allocated(task.status)
        ):
            task.status = Status.RELEASING  # Our eviction is on its way.
        row = NOWHERE
        if node:
            row = self.nodes.row(node)
        if old is not None:
            self.transfers.pod_updated(old, task)
            task.condition = old.condition
            if row != NOWHERE and row == old.row and self._renews(old, task, meta, spec):
                return True
            self._forget(old)
        self.by_key[key] = task
        if row != NOWHERE:
            task.row = row
            if task.status not in FINISHED:
                self.nodes.hold(task, row, task.status)
        self._join(task, meta, spec)
        if task.status in FINISHED and self.jobs.runs is not None and task.job is not None:
            self.jobs.runs.finished(task.job, task)
        if old is None:
            self.transfers.pod_added(task)
        if (
            self.mix is not None
            and task.job is not None
            and (old is None or old.uid != task.uid)
            and not self.transfers.comes_back(task)
        ):
            self.mix.came(task.pods)
        if node and self.jobs.back_off.waits and task.job is not None:
            self.jobs.back_off.succeeded(task.job.key)
        return True

    def remove(self, key: str) -> bool:
        """A pod is gone; False where it was not known."""
        task = self.by_key.pop(key, None)
        if task is None:
            return False
        self.transfers.pod_removed(task)
        self.notices.pod_gone(key)
        self._forget(task)
        return True

    def read(self, tree: Tree) -> Task:
        """What the engine keeps of a pod.  Raises ValueError and the like for a pod that cannot be
        understood."""
        meta = tree.get("metadata") or {}
        spec = tree.get("spec") or {}
        status = tree.get("status") or {}
        stays = resized(spec, status)
        template = self._template(meta, stays)
        pods = template.pods
        namespace, name = meta.get("namespace", ""), meta.get("name", "")
        task = Task(key_of(tree), namespace, name, meta.get("uid", ""), pods, template.labels)
        task.role = template.role
        task.priority, task.pod_priority = template.priority, template.pod_priority
        task.priority_class = template.priority_class
        task.preemptable = template.preemptable
        task.revocable_zone = template.revocable_zone
        task.annotations = template.annotations
        task.walltime, task.gated = template.walltime, template.gated
        task.stated = template.stated
        task.creation = instant(meta.get("creationTimestamp", "") or "")
        task.index = pod_index(name)
        if pods.claims or pods.extended:
            task.claims = claim_keys(namespace, spec, status)
            task.unmade = claims_to_come(spec, status)
            self.imply_claims(task, spec, status)
        task.nominated = status.get("nominatedNodeName", "")
        task.terminating = bool(meta.get("deletionTimestamp"))
        task.status = status_of(status.get("phase", ""), task.terminating, spec.get("nodeName", ""))
        task.start = instant(status.get("startTime", "") or "")
        if task.status in FINISHED:
            task.ended = ended_at(status)
        task.disrupted = task.terminating and any(
            one.get("type") == "DisruptionTarget"
            and one.get("status") == "True"
            and one.get("reason") == "PreemptionByScheduler"
            for one in status.get("conditions") or ()
        )
        task.scheduled = scheduled_at(status)
        task.condition = condition_of(status)
        return task

    def _template(self, meta: Tree, spec: Tree) -> Template:
        """What a pod says that others may say, too; read once for all of them.  `spec` as `resized`
        gives it."""
        stated = pod_stated_by(meta, spec)
        known = self.templates.get(stated)
        if known is None:
            known = self._read_template(stated, meta, spec)
            if stated:
                self.templates[stated] = known
        return known

    def _read_template(self, stated: bytes, meta: Tree, spec: Tree) -> Template:
        namespace = meta.get("namespace", "")
        labels, annotations = texts(meta, "labels"), texts(meta, "annotations")
        pods = self.classes.intern(namespace, labels, annotations, spec)
        if self.terms.new:
            self.count_new_terms()
        if pods.minimum is None and self._stands_alone(meta, spec):
            least = {name: str(amount) for name, amount in pod_usage(spec).items()}
            pods.minimum = Minimum(least, resources.amounts(least))
        preemptable = annotations.get(PREEMPTABLE, labels.get(PREEMPTABLE))
        return Template(
            stated=stated,
            pods=pods,
            labels=self.terms.label_set(namespace, labels, owner_of(meta)),
            annotations={
                intern(name): value
                for name, value in annotations.items()
                if not name.startswith("kubectl.")
            },
            role=annotations.get(TASK_SPEC) or labels.get(TASK_SPEC, ""),
            priority=priority_of(spec, annotations),
            pod_priority=int(spec.get("priority") or 0),
            priority_class=spec.get("priorityClassName", ""),
            preemptable=True if preemptable is None else preemptable in TRUE,
            revocable_zone=revocable_zone(annotations),
            walltime=pod_walltime(annotations, spec),
            gated=tuple(gate.get("name", "") for gate in spec.get("schedulingGates") or ()),
        )

    def _join(self, task: Task, meta: Tree, spec: Tree) -> None:
        told = True
        named = _named_group(meta)
        if alone := not named and self._stands_alone(meta, spec):
            named = bare_pod_group_name(meta.get("uid", ""))
        if named:
            job = self.jobs.of_group(f"{task.namespace}/{named}")
            if alone and not job.has_group:
                self._imply_group(job, task, meta, spec)
                told = task.status not in HOLDS
        elif spec.get("schedulerName") in self.bare_pod_schedulers:
            job = self.jobs.of_bare_pod(task, owner_of(meta), self.default_queue)
        else:
            return
        job.add_task(task)
        if told:
            self.jobs.mark_changed(job)
        else:  # It has its node, and nobody reads a status of its group.
            self.jobs.mark_uncounted(job)

    def _group_name(self, meta: Tree, spec: Tree) -> str:
        """The PodGroup that a pod names, or that it is by itself; "" where it has none."""
        named = _named_group(meta)
        if not named and self._stands_alone(meta, spec):
            return bare_pod_group_name(meta.get("uid", ""))
        return named

    def _stands_alone(self, meta: Tree, spec: Tree) -> bool:
        return spec.get("schedulerName") in self.implying and stands_alone(meta)

    def _imply_group(self, job: Job, task: Task, meta: Tree, spec: Tree) -> None:
        """Let the job say what a PodGroup of this pod alone would; when somebody makes the object,
        it takes the place of this."""
        least = task.pods.minimum or NO_MINIMUM
        job.has_group = job.shadow = True
        job.title = task.name
        job.queue = texts(meta, "annotations").get(GROUP_QUEUE_NAME) or self.queue_of(
            task.namespace
        )
        job.min_available = 1
        job.min_resources, job.min_quantities = least.amounts, least.quantities
        job.phase = "Running" if spec.get("nodeName") else "Pending"
        job.creation = task.creation
        job.priority_class = task.priority_class

    def _read_on(self, old: Task, node: str, meta: Tree, spec: Tree, status: Tree) -> bool:
        """As `_renews` for a pod of which nothing but its status has changed since it was read:
        the rest is not read again."""
        was = old.status
        if (
            was not in HOLDS
            or not old.stated
            or self.nodes.rows.get(node) != old.row
            or meta.get("deletionTimestamp")
            or old.pods.claims
            or old.pods.extended
            or not _has_a_plain_place(old)
        ):
            return False
        reached = status_of(status.get("phase", ""), False, node)
        if (
            reached not in HOLDS
            or meta.get("uid", "") != old.uid
            or pod_stated_by(meta, resized(spec, status)) != old.stated
            or instant(meta.get("creationTimestamp", "") or "") != old.creation
        ):
            return False
        start, scheduled = instant(status.get("startTime", "") or ""), scheduled_at(status)
        old.nominated = status.get("nominatedNodeName", "")
        old.start = start
        old.scheduled = scheduled
        old.status, old.last, old.evicted_for, old.allocated_domain = reached, None, False, ""
        self._renew(old, was)
        return True

    def _renews(self, old: Task, task: Task, meta: Tree, spec: Tree) -> bool:
        """Puts a pod in its own place where it is no other to its node and its job than it was, but
        for how far it has come.

        Most of what comes of a pod is that: it is bound where it was to be bound, and then it runs.
        """
        if (
            old.status not in HOLDS
            or task.status not in HOLDS
            or task.terminating
            or old.pods is not task.pods
            or old.labels is not task.labels
            or old.role != task.role
            or task.gated
            or not _has_a_plain_place(old)
            or self._group_name(meta, spec) != old.job.name  # type: ignore[union-attr]  # its place is in a job
        ):
            return False
        task.row, task.job, task.subjob = old.row, old.job, old.subjob
        self._renew(task, old.status)
        return True

    def _renew(self, task: Task, was: Status) -> None:
        """Another reading of a pod that goes on takes the place of the one before, which had this
        status."""
        job, key = task.job, task.key
        assert job is not None
        self.by_key[key] = task
        self.nodes.renew(task, task.row)
        del job.tasks[key]  # It goes last, as whatever comes does.
        job.tasks[key] = task
        job.counts.replace(task, was)
        job.fit_errors.pop(key, None)
        if job.contribution is None:
            self.jobs.mark_changed(job)
        else:  # what it adds to its queue is what it added
            self.jobs.unreported[job.key] = job
            job.rests_until = -math.inf
        if self.jobs.back_off.waits:
            self.jobs.back_off.succeeded(job.key)

    def _forget(self, task: Task) -> None:
        if task.row != NOWHERE and task.status not in FINISHED:
            self.nodes.release(task, task.row, task.status)
        job = task.job
        if job is not None:
            job.remove_task(task)
            self.jobs.mark_changed(job)
            if not job.tasks and (job.shadow or not job.has_group):
                self.jobs.drop(job)

    def count_new_terms(self) -> None:
        """Terms that have just appeared learn what is on the nodes already."""
        size = max(64, len(self.nodes))
        for term in self.terms.new:
            term.grow(size)
            for row, held in enumerate(self.nodes.tasks):
                for task in held.values():
                    if term in task.labels.terms:
                        term.matched[row] += 1
                        term.live[row] += not task.terminating
        self.terms.new.clear()

    def set_status(self, task: Task, status: Status) -> None:
        """The task has come further, or is put back."""
        if task.job is None:
            task.status = status
        else:
            task.job.set_status(task, status)
            self.jobs.mark_changed(task.job)

    def compact_nodes(self) -> None:
        """Drop the rows of nodes that left."""
        moved = self.nodes.compact()
        for task in self.by_key.values():
            if task.row != NOWHERE:
                task.row = moved[task.row]

    def compact_classes(self) -> None:
        """Drop the classes and sets of labels that no pod has any more."""
        self.templates.clear()  # They would bring back what is dropped.
        live = {id(task.pods) for task in self.by_key.values()}
        self.classes.by_key = {
            key: one for key, one in self.classes.by_key.items() if id(one) in live
        }
        self.terms.keep(
            {id(task.labels) for task in self.by_key.values()},
            list(self.classes.by_key.values()),
        )


def _named_group(meta: Tree) -> str:
    """The PodGroup that a pod names; "" where it names none."""
    named: str = (meta.get("annotations") or {}).get(GROUP_NAME) or ""
    return named


def _has_a_plain_place(task: Task) -> bool:
    """Whether a pod on a node, in a job, may be renewed where it is: nothing but its status says
    where it belongs."""
    job = task.job
    return not (
        job is None
        or not job.has_group
        or job.policies
        or job.key == task.key  # a bare pod, whose job has no group's name
        or task.terminating
        or task.gated
    )
