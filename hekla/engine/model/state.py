"""The cluster as the engine knows it: tables that events change in place.

Whoever feeds the engine calls `upsert_*` and `remove_*` as objects come and go, with the typed
objects of `hekla.api` or with their JSON trees.  Nothing here raises for what an object says: one
that cannot be understood is left out, and `rejected` tells why, in words for the person who wrote
it.  Reference: scheduler-core 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from sys import intern
from typing import Any

from hekla.engine.model import resources
from hekla.engine.model.backoff import BackOff
from hekla.engine.model.claims import KINDS as CLAIM_KINDS
from hekla.engine.model.claims import ClaimBook
from hekla.engine.model.durations import instant, zone
from hekla.engine.model.nodes import NodeFacts, NodeTable, Taint
from hekla.engine.model.podclass import PodClasses, TermTable, image_name
from hekla.engine.model.queues.queues import OPEN, Queue
from hekla.engine.model.queues.sums import Sums
from hekla.engine.model.reading import (
    GROUP_NAME,
    PREEMPTABLE,
    TASK_SPEC,
    TRUE,
    Tree,
    claim_keys,
    claims_to_come,
    condition_of,
    key_of,
    number,
    optional_amounts,
    pod_index,
    pod_stated_by,
    policy_of,
    priority_of,
    resized,
    revocable_zone,
    says_as_sent,
    says_something,
    scheduled_at,
    sent_status,
    stated_by,
    status_of,
    texts,
    title_of,
    topology_of,
    tree_of_object,
    waiting_time,
)
from hekla.engine.model.resources import Amounts, ResourceSpace
from hekla.engine.model.shapes import check
from hekla.engine.model.shards import Shard
from hekla.engine.model.spread_peers import KINDS as KIN_KINDS
from hekla.engine.model.spread_peers import owner_of
from hekla.engine.model.tasks import (
    FINISHED,
    HOLDS,
    NOT_LET_IN,
    NOWHERE,
    Job,
    Status,
    Task,
    is_allocated,
)
from hekla.engine.model.transfers import Transfers, wants_of
from hekla.engine.model.volumes import KINDS as VOLUME_KINDS
from hekla.engine.model.volumes import VolumeBook


class State:
    """Nodes, jobs, queues and what else the plugins read.

    `scheduler_names`: whose unassigned pods are ours; None means everybody's. `lone_schedulers`:
    names whose pods need no PodGroup; each such pod is a job of its own (`namespace/pod`, minimum
    1) in the default queue. `time_zone`: in which the policy's times of day are meant; the engine
    itself never asks the machine. `shard_mode`, `shard_name`: what NodeShards mean (`none`, `hard`,
    `soft`) and which one is this scheduler's. `lifts_gates`: whether pods that only their queue's
    gate holds are let go (gate SchedulingGatesQueueAdmission). `scores_storage`: whether nodes are
    preferred by how their volumes would be used (gate StorageCapacityScoring).
    """

    def __init__(
        self,
        *,
        scheduler_names: Iterable[str] | None = None,
        lone_schedulers: Iterable[str] = (),
        default_queue: str = "default",
        time_zone: str = "UTC",
        lifts_gates: bool = False,
        scores_storage: bool = False,
        shard_mode: str = "none",
        shard_name: str = "volcano",
    ) -> None:
        self.scheduler_names = None if scheduler_names is None else frozenset(scheduler_names)
        self.lone_schedulers = frozenset(lone_schedulers)
        self.default_queue = default_queue
        self.zone = zone(time_zone)
        self.lifts_gates = lifts_gates
        self.scores_storage = scores_storage
        self.shard = Shard(shard_mode, shard_name)
        self.space = ResourceSpace()
        self.terms = TermTable()
        self.classes = PodClasses(self.space, self.terms)
        self.nodes = NodeTable(self.space, self.terms)
        self.tasks: dict[str, Task] = {}
        self.jobs: dict[str, Job] = {}
        self.queues: dict[str, Queue] = {}
        self.priority_classes: dict[str, int] = {}
        self.default_priority = 0
        self.others: dict[str, dict[str, Tree]] = {}
        """Objects that only some plugins read, as JSON trees: kind -> key -> tree."""
        self.volumes = VolumeBook(self)
        self.claims = ClaimBook(self)
        self.ask_extender: Callable[[str, Mapping[str, Any], float], Any] | None = None
        """Posts JSON to an address within so many seconds and gives the reply's; raises OSError or
        ValueError.  For `extender`."""
        self.rejected: dict[tuple[str, str], str] = {}
        """What was left out and why: (kind, key) -> reason."""
        self.dirty: dict[str, Job] = {}
        """Jobs that changed since their sums were last counted."""
        self.active: dict[str, Job] = {}
        """Jobs that have something to decide: pending tasks, or not let in yet."""
        self.unreported: dict[str, Job] = {}
        """Jobs that changed since their status was last compared with what the API has."""
        self.strays: dict[str, Job] = {}
        """Jobs that nobody looks at, because their queue or PodGroup does not exist, and that have
        not been told so."""
        self.reserved: Amounts = resources.empty()
        """Sum over jobs of what overcommit counts as promised."""
        self.sums = Sums(self.queues, self.reserved)
        self.version = 0
        self.cycle = 0
        self.hyper_nodes: Mapping[str, Any] | None = None
        """HyperNodes as ready-made sets, in place of the objects."""
        self.hyper_version = 0
        self.tree: Any = None
        self.hooks: Any = None
        """The policy's plugins, as last used on this state."""
        self.settled: Any = None
        """Version and plugins of the last cycle: when nothing moved since, the next one has nothing
        to say."""
        self.claimants: list[str] = []
        """Jobs that others were evicted for and that wait for the room: they are served first, so
        that they are the ones to get it."""
        self.transfers = Transfers()
        self.back_off = BackOff()
        self.remembered: dict[str, float] = {}
        """Times that plugins keep beyond a change of the policy: what -> when."""
        self._default_class = ""
        self._tidy_at = 1024

    # ----------------------------------------------------------------------------------------- pods

    def upsert_pod(self, pod: Any) -> None:
        """A pod came or changed."""
        self._guard("Pod", pod, self._upsert_pod)

    def remove_pod(self, pod: Any) -> None:
        """A pod is gone.  Takes the object or its key."""
        key = pod if isinstance(pod, str) else key_of(tree_of_object(pod))
        self.rejected.pop(("Pod", key), None)
        task = self.tasks.pop(key, None)
        if task is not None:
            self.version += 1
            self.transfers.pod_went(task)
            self._forget(task)

    def _upsert_pod(self, tree: Tree) -> None:
        meta, spec = tree.get("metadata") or {}, tree.get("spec") or {}
        key = key_of(tree)
        old = self.tasks.get(key)
        node = spec.get("nodeName") or ""
        if type(node) is not str:
            raise ValueError(f"spec.nodeName is {node!r}, not a text")
        scheduler = spec.get("schedulerName", "")
        ours = (
            self.scheduler_names is None
            or scheduler in self.scheduler_names
            or scheduler in self.lone_schedulers
        )
        if not node and not ours:
            if old is not None:
                self.remove_pod(key)
            return
        if (
            old is not None
            and old.uid == meta.get("uid", "")
            and not node
            and is_allocated(old.status)
        ):
            return  # Our bind is on its way; the pod without a node is the past.
        if (
            old is not None
            and node
            and self._comes_on(old, node, meta, spec, tree.get("status") or {})
        ):
            return
        task = self.read_task(tree)
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
        self.version += 1
        if old is not None:
            self.transfers.pod_went_on(old, task)
            task.condition = old.condition
            if row != NOWHERE and row == old.row and self._goes_on(old, task, meta):
                return
            self._forget(old)
        self.tasks[key] = task
        if row != NOWHERE:
            task.row = row
            if task.status not in FINISHED:
                self.nodes.hold(task, row, task.status)
        self._join(task, meta, scheduler)
        if old is None:
            self.transfers.pod_came(task)
        if node and self.back_off.waits and task.job is not None:
            self.back_off.succeeded(task.job.key)

    def read_task(self, tree: Tree) -> Task:
        """What the engine keeps of a pod.  Raises ValueError and the like for a pod that cannot be
        understood."""
        meta, spec, status = (
            tree.get("metadata") or {},
            tree.get("spec") or {},
            tree.get("status") or {},
        )
        namespace, name = meta.get("namespace", ""), meta.get("name", "")
        labels, annotations = texts(meta, "labels"), texts(meta, "annotations")
        stays = resized(spec, status)
        pods = self.classes.intern(namespace, labels, annotations, stays)
        if self.terms.new:
            self._count_new_terms()
        task = Task(
            key_of(tree),
            namespace,
            name,
            meta.get("uid", ""),
            pods,
            self.terms.label_set(namespace, labels, owner_of(meta)),
        )
        task.role = annotations.get(TASK_SPEC) or labels.get(TASK_SPEC, "")
        task.priority, task.pod_priority = (
            priority_of(spec, annotations),
            int(spec.get("priority") or 0),
        )
        task.priority_class = spec.get("priorityClassName", "")
        stated = annotations.get(PREEMPTABLE, labels.get(PREEMPTABLE))
        task.preemptable = True if stated is None else stated in TRUE
        task.revocable_zone = revocable_zone(annotations)
        task.annotations = {
            intern(name): value
            for name, value in annotations.items()
            if not name.startswith("kubectl.")
        }
        task.creation = instant(meta.get("creationTimestamp", "") or "")
        task.index = pod_index(name)
        task.gated = tuple(gate.get("name", "") for gate in spec.get("schedulingGates") or ())
        if pods.claims or pods.extended:
            task.claims, task.unmade = (
                claim_keys(namespace, spec, status),
                claims_to_come(spec, status),
            )
            self.claims.imply(task, spec, status)
        task.nominated = status.get("nominatedNodeName", "")
        task.terminating = bool(meta.get("deletionTimestamp"))
        task.status = status_of(status.get("phase", ""), task.terminating, spec.get("nodeName", ""))
        task.start = instant(status.get("startTime", "") or "")
        task.disrupted = task.terminating and any(
            one.get("type") == "DisruptionTarget"
            and one.get("status") == "True"
            and one.get("reason") == "PreemptionByScheduler"
            for one in status.get("conditions") or ()
        )
        task.scheduled = scheduled_at(status)
        task.condition = condition_of(status)
        if spec.get(
            "nodeName"
        ):  # of thousands that wait it would only take room in the processor's caches
            task.stated = pod_stated_by(meta, stays)
        return task

    def _join(self, task: Task, meta: Tree, scheduler: str) -> None:
        group = (meta.get("annotations") or {}).get(GROUP_NAME)
        if group:
            job = self._job(f"{task.namespace}/{group}")
        elif scheduler in self.lone_schedulers:
            job = self._lone_job(task, owner_of(meta))
        else:
            return
        job.add_task(task)
        self.touch(job)

    def _comes_on(self, old: Task, node: str, meta: Tree, spec: Tree, status: Tree) -> bool:
        """As `_goes_on` for a pod of which nothing but its status has changed since it was read:
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
        if reached not in HOLDS or pod_stated_by(meta, resized(spec, status)) != old.stated:
            return False
        start, scheduled = instant(status.get("startTime", "") or ""), scheduled_at(status)
        old.nominated, old.start, old.scheduled = (
            status.get("nominatedNodeName", ""),
            start,
            scheduled,
        )
        old.status, old.last, old.evicted_for, old.allocated_domain = reached, None, False, ""
        self.version += 1
        self._renew(old, was)
        return True

    def _goes_on(self, old: Task, task: Task, meta: Tree) -> bool:
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
            or (meta.get("annotations") or {}).get(GROUP_NAME) != old.job.name  # type: ignore[union-attr]  # its place is in a job
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
        self.tasks[key] = task
        self.nodes.renew(task, task.row)
        del job.tasks[key]  # It goes last, as whatever comes does.
        job.tasks[key] = task
        job.counts.replace(task, was)
        job.fit_errors.pop(key, None)
        if job.contribution is None:
            self.touch(job)
        else:  # what it adds to its queue is what it added
            self.unreported[job.key] = job
            job.rests_until = -math.inf
        if self.back_off.waits:
            self.back_off.succeeded(job.key)

    def _lone_job(self, task: Task, owner: str) -> Job:
        job = self._job(task.key)
        if not job.has_group:
            job.has_group = job.shadow = True
            job.lineage = f"{task.namespace}/{owner}" if owner else job.key
            job.queue = self.default_queue
            job.min_available = 1
            job.phase = "Inqueue"
            job.creation = task.creation
            job.priority_class = task.priority_class
        return job

    def _forget(self, task: Task) -> None:
        if task.row != NOWHERE and task.status not in FINISHED:
            self.nodes.release(task, task.row, task.status)
        job = task.job
        if job is not None:
            job.remove_task(task)
            self.touch(job)
            if not job.tasks and (job.shadow or not job.has_group):
                self._drop(job)

    def _count_new_terms(self) -> None:
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

    # ---------------------------------------------------------------------------------------- nodes

    def upsert_node(self, node: Any) -> None:
        """A node came or changed."""
        self._guard("Node", node, self._upsert_node)

    def remove_node(self, node: Any) -> None:
        """A node is gone.  Takes the object or its name."""
        name = node if isinstance(node, str) else key_of(tree_of_object(node))
        self.rejected.pop(("Node", name), None)
        self.nodes.remove(name)
        self.transfers.forget()
        self.version += 1

    def _upsert_node(self, tree: Tree) -> None:
        meta, spec, status = (
            tree.get("metadata") or {},
            tree.get("spec") or {},
            tree.get("status") or {},
        )
        annotations = dict(texts(meta, "annotations"))
        allocatable, capacity = (
            resources.amounts(status.get("allocatable")),
            resources.amounts(status.get("capacity")),
        )
        for name, annotation in (
            (resources.CPU, "volcano.sh/oversubscription-cpu"),
            (resources.MEMORY, "volcano.sh/oversubscription-memory"),
        ):
            more = number(annotations.get(annotation, ""))
            allocatable[name] += more
            capacity[name] += (
                more if capacity[name] else 0.0
            )  # A node that does not state it has what it can give away.
        images = {
            image_name(name): int(image.get("sizeBytes", 0))
            for image in reversed(
                status.get("images") or ()
            )  # of a name that is there twice the first one's size counts
            for name in image.get("names") or ()
        }
        before = self.nodes.version
        facts = NodeFacts(
            name=key_of(tree),
            labels=dict(texts(meta, "labels")),
            taints=tuple(
                Taint(one.get("key", ""), one.get("value", ""), one.get("effect", ""))
                for one in spec.get("taints") or ()
            ),
            unschedulable=bool(spec.get("unschedulable")),
            allocatable=allocatable,
            capacity=capacity,
            images=images,
            annotations={key: value for key, value in annotations.items() if says_something(key)},
        )
        row = self.nodes.rows.get(facts.name)
        self.transfers.node_changed(None if row is None else self.nodes.facts[row], facts)
        self.nodes.upsert(facts)
        if self.nodes.version != before:
            self.version += 1

    # ----------------------------------------------------------------------------------- pod groups

    def upsert_pod_group(self, group: Any) -> None:
        """A PodGroup came or changed."""
        self._guard("PodGroup", group, self._upsert_pod_group)

    def remove_pod_group(self, group: Any) -> None:
        """A PodGroup is gone.  Takes the object or its key."""
        key = group if isinstance(group, str) else key_of(tree_of_object(group))
        self.rejected.pop(("PodGroup", key), None)
        job = self.jobs.get(key)
        if job is None:
            return
        self.version += 1
        self.transfers.forget()
        job.has_group = False
        job.stated = b""
        job.topology = None
        job.policies = ()
        job.rebuild_sub_jobs()
        self.touch(job)
        if not job.tasks:
            self._drop(job)

    def _upsert_pod_group(self, tree: Tree) -> None:
        meta, spec, status = (
            tree.get("metadata") or {},
            tree.get("spec") or {},
            tree.get("status") or {},
        )
        stated = stated_by(meta, spec)
        known = self.jobs.get(key_of(tree))
        if known is not None and stated and known.stated == stated and says_as_sent(status, known):
            # What was written here comes back: nothing to look at again, but for the times that the
            # server keeps.
            known.conditions = [dict(one) for one in status.get("conditions") or ()]
            return
        minimum = spec.get("minResources")
        min_resources = None if minimum is None else resources.amounts(minimum)
        check("PodGroup", tree)
        policies = tuple(policy_of(one) for one in spec.get("subGroupPolicy") or ())
        topology = topology_of(spec.get("networkTopology"))
        annotations, labels = dict(texts(meta, "annotations")), texts(meta, "labels")
        min_available = int(spec.get("minMember", 0) or 0)
        roles = {role: int(count) for role, count in (spec.get("minTaskMember") or {}).items()}
        job = self._job(key_of(tree))
        self.version += 1
        wanted = wants_of(job) if job.has_group and not job.shadow else None
        job.has_group, job.shadow = True, False
        job.stated = stated
        job.pg_uid = meta.get("uid", "")
        job.title = title_of(meta) or job.name
        job.queue = spec.get("queue", "") or self.default_queue
        job.creation = instant(meta.get("creationTimestamp", "") or "")
        job.min_available = min_available
        job.min_resources, job.min_quantities = min_resources, dict(minimum or {})
        job.role_minimums, job.role_total = roles, sum(roles.values())
        job.priority_class = spec.get("priorityClassName", "")
        job.annotations = annotations
        preemptable = job.annotations.get(PREEMPTABLE, labels.get(PREEMPTABLE))
        job.preemptable = preemptable is not None and preemptable in TRUE
        job.stated_preemptable = preemptable is None or preemptable in TRUE
        job.revocable_zone = revocable_zone(job.annotations)
        job.waiting_time = waiting_time(job.annotations)
        if wants_of(job) != wanted:
            self.transfers.forget()
        job.phase = status.get("phase", "")
        job.conditions = [dict(one) for one in status.get("conditions") or ()]
        job.status_sent = sent_status(status)
        job.topology = topology
        job.policies = policies
        job.min_sub_jobs = {
            f"{job.key}/{policy.name}": int(one.get("minSubGroups") or 0)
            for policy, one in zip(policies, spec.get("subGroupPolicy") or ())
        }
        job.rebuild_sub_jobs()
        self.touch(job)

    # -------------------------------------------------------------------------- queues and the rest

    def upsert_queue(self, queue: Any) -> None:
        """A Queue came or changed."""
        self._guard("Queue", queue, self._upsert_queue)

    def remove_queue(self, queue: Any) -> None:
        """A Queue is gone.  Takes the object or its name."""
        name = queue if isinstance(queue, str) else key_of(tree_of_object(queue))
        self.rejected.pop(("Queue", name), None)
        if self.queues.pop(name, None) is not None:
            self.version += 1
            self.transfers.forget()
            self._touch_queue(name)
            # At once: a queue of the same name that comes before the next cycle begins with sums of
            # nothing.
            for job in self.dirty.values():
                if job.queue == name or (
                    job.contribution is not None and job.contribution.queue == name
                ):
                    self._look_again(job)
            self.sums.count()

    def _upsert_queue(self, tree: Tree) -> None:
        meta, spec, status = (
            tree.get("metadata") or {},
            tree.get("spec") or {},
            tree.get("status") or {},
        )
        name = key_of(tree)
        check("Queue", tree)
        guarantee = (spec.get("guarantee") or {}).get("resource")
        reclaimable = spec.get("reclaimable")
        fresh = Queue(
            name=name,
            weight=max(int(spec.get("weight", 1) or 0), 0),
            priority=int(spec.get("priority", 0) or 0),
            parent=spec.get("parent", "") or "",
            reclaimable=True if reclaimable is None else bool(reclaimable),
            state=status.get("state") or OPEN,  # One to which no controller has come yet is open.
            creation=instant(meta.get("creationTimestamp", "") or ""),
            uid=name,
            capability=optional_amounts(spec.get("capability")),
            deserved=optional_amounts(spec.get("deserved")),
            guarantee=optional_amounts(guarantee),
            annotations=dict(texts(meta, "annotations")),
            affinity=spec.get("affinity"),
            quota={
                "capability": spec.get("capability") or {},
                "deserved": spec.get("deserved") or {},
                "guarantee": guarantee or {},
            },
            status_sent={key: str(value) for key, value in (status.get("allocated") or {}).items()},
        )
        old = self.queues.get(name)
        self.version += 1
        self.transfers.queue_changed(old, fresh)
        if old is not None:
            fresh.allocated, fresh.request, fresh.inqueue = old.allocated, old.request, old.inqueue
            fresh.elastic, fresh.jobs = old.elastic, old.jobs
        self.queues[name] = fresh
        if old is None:
            self._touch_queue(name)

    def _touch_queue(self, name: str) -> None:
        for job in self.jobs.values():
            if job.queue == name:
                self.touch(job)

    def upsert_priority_class(self, priority: Any) -> None:
        """A PriorityClass came or changed."""
        self._guard("PriorityClass", priority, self._upsert_priority_class)

    def _upsert_priority_class(self, tree: Tree) -> None:
        name = key_of(tree)
        check("PriorityClass", tree)
        if self.priority_classes.get(name) != int(tree.get("value", 0)):
            self.transfers.forget()
        self.priority_classes[name] = int(tree.get("value", 0))
        if tree.get("globalDefault"):
            self._default_class, self.default_priority = name, int(tree.get("value", 0))
        elif name == self._default_class:
            self._default_class, self.default_priority = "", 0
        self._touch_priorities()

    def remove_priority_class(self, priority: Any) -> None:
        """A PriorityClass is gone.  Takes the object or its name."""
        name = priority if isinstance(priority, str) else key_of(tree_of_object(priority))
        self.priority_classes.pop(name, None)
        self.transfers.forget()
        if name == self._default_class:
            self._default_class, self.default_priority = "", 0
        self._touch_priorities()

    def _touch_priorities(self) -> None:
        self.version += 1
        self.dirty.update(self.jobs)  # also those that run: who may be evicted depends on it

    def upsert_namespace(self, namespace: Any) -> None:
        """A Namespace came or changed; its labels may be selected by inter-pod terms."""
        self._guard("Namespace", namespace, self._upsert_namespace)

    def _upsert_namespace(self, tree: Tree) -> None:
        name = key_of(tree)
        self.terms.relabel(name, dict((tree.get("metadata") or {}).get("labels") or {}))
        self._count_new_terms()
        self.upsert_other("Namespace", tree)

    def upsert_other(self, kind: str, obj: Any) -> None:
        """Any other object that a plugin may read: ResourceQuota, PodDisruptionBudget, HyperNode, a
        volume claim, ..."""
        self._guard(kind, obj, lambda tree: self._upsert_other(kind, tree))

    def _upsert_other(self, kind: str, tree: Tree) -> None:
        try:
            check(kind, tree)
        except ValueError:
            if key_of(tree) in self.others.get(kind, {}):
                self.remove_other(kind, key_of(tree))
            raise
        if kind in KIN_KINDS:
            self.terms.peers.changed(kind, key_of(tree), tree)
            # It only says where a pod had rather go: nothing that waits can start because of it.
            return
        # Kept for long, so it must not change when whoever fed it lets go of the rest of its own.
        kept = {**tree, "metadata": dict(tree.get("metadata") or {})}
        self.others.setdefault(kind, {})[key_of(tree)] = kept
        self.version += 1
        if kind in CLAIM_KINDS:
            self.claims.changed(kind, key_of(tree), kept)
        self.volumes.version += kind in VOLUME_KINDS
        self.hyper_version += kind == "HyperNode"

    def remove_other(self, kind: str, obj: Any) -> None:
        key = obj if isinstance(obj, str) else key_of(tree_of_object(obj))
        self.rejected.pop((kind, key), None)
        if kind in KIN_KINDS:
            self.terms.peers.changed(kind, key, None)
            return
        self.others.get(kind, {}).pop(key, None)
        self.version += 1
        if kind in CLAIM_KINDS:
            self.claims.changed(kind, key, None)
        self.volumes.version += kind in VOLUME_KINDS
        self.hyper_version += kind == "HyperNode"

    # --------------------------------------------------------------------- what became of decisions

    def bind_failed(self, pod: str, now: float | None = None) -> None:
        """The API server refused a bind: the pod is pending again and its room is free.

        `now`: the job stands back for a while from then on; without, it may be tried again at once.
        """
        task = self.tasks.get(pod)
        if task is None or task.status is not Status.BINDING:
            return
        if now is not None and task.job is not None:
            self.back_off.failed(task.job.key, now)
        self.version += 1
        self.nodes.release(task, task.row, task.status)
        task.row = NOWHERE
        self._set(task, Status.PENDING)

    def evict_failed(self, pod: str) -> None:
        """The API server refused an eviction: the pod runs on."""
        task = self.tasks.get(pod)
        if task is None or task.status is not Status.RELEASING or task.terminating:
            return
        self.version += 1
        self.nodes.change(task, task.row, Status.RELEASING, Status.RUNNING)
        self._set(task, Status.RUNNING)

    def condition_failed(self, pod: str) -> None:
        """A pod's condition could not be written: what was not written is decided again."""
        task = self.tasks.get(pod)
        if task is not None:
            task.condition = None

    def _set(self, task: Task, status: Status) -> None:
        if task.job is None:
            task.status = status
        else:
            task.job.set_status(task, status)
            self.touch(task.job)

    # ----------------------------------------------------------------------------------------- sums

    def touch(self, job: Job) -> None:
        """The job's sums and status have to be looked at again."""
        self.dirty[job.key] = job
        self.unreported[job.key] = job
        job.rests_until = -math.inf

    def refresh(self) -> None:
        """Count again what changed; a cycle begins with it and costs as much as there were changes."""
        for job in self.dirty.values():
            self._look_again(job)
        self.sums.count()
        self.dirty.clear()
        if self.terms.peers.uncounted:
            self.terms.peers.count(self.nodes.tasks)
        self.claims.lend(self.nodes)
        self.nodes.widen()
        self._tidy()

    def _tidy(self) -> None:
        """Drop what nobody refers to any more, once it is the larger part: rows of nodes that left,
        classes without pods."""
        if self.nodes.dead > 64 and self.nodes.dead > len(self.nodes) // 2:
            moved = self.nodes.compact()
            for task in self.tasks.values():
                if task.row != NOWHERE:
                    task.row = moved[task.row]
        if len(self.classes.by_key) + len(self.terms.label_sets) > self._tidy_at:
            live = {id(task.pods) for task in self.tasks.values()}
            self.classes.by_key = {
                key: one for key, one in self.classes.by_key.items() if id(one) in live
            }
            self.terms.keep(
                {id(task.labels) for task in self.tasks.values()},
                list(self.classes.by_key.values()),
            )
            self._tidy_at = 1024 + 2 * (len(self.classes.by_key) + len(self.terms.label_sets))

    def _look_again(self, job: Job) -> None:
        key = job.key
        if not (job.has_group and key in self.jobs and job.queue in self.queues):
            self.sums.leave(job)
            self.active.pop(key, None)
            if key in self.jobs and (job.has_group or job.counts.statuses[Status.PENDING]):
                self.strays[key] = job
            else:
                self.strays.pop(key, None)
            return
        if self.strays:
            self.strays.pop(key, None)
        job.priority = self.priority_classes.get(job.priority_class, self.default_priority)
        if job.shadow and job.priority_class not in self.priority_classes and job.tasks:
            job.priority = max(task.priority for task in job.tasks.values())
        self.sums.look(job)
        if job.phase in NOT_LET_IN or job.counts.statuses[Status.PENDING]:
            self.active[key] = job
        else:
            self.active.pop(key, None)

    # --------------------------------------------------------------------------------------- inside

    def _job(self, key: str) -> Job:
        job = self.jobs.get(key)
        if job is None:
            job = self.jobs[key] = Job(key)
        return job

    def _drop(self, job: Job) -> None:
        self.jobs.pop(job.key, None)
        self.back_off.succeeded(job.key)
        self.unreported.pop(job.key, None)
        self.touch_dropped(job)

    def touch_dropped(self, job: Job) -> None:
        """A job that left must leave the sums too."""
        self.dirty[job.key] = job
        if self.jobs.get(job.key) is not job:
            self._look_again(job)
            self.sums.count()
            self.dirty.pop(job.key, None)

    def _guard(self, kind: str, obj: Any, upsert: Callable[[Tree], None]) -> None:
        try:
            tree = tree_of_object(obj)
            key = key_of(tree)
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            self.rejected[(kind, "?")] = f"not an object: {error}"
            return
        self.rejected.pop((kind, key), None)
        try:
            upsert(tree)
        except (AttributeError, TypeError, ValueError, KeyError, OverflowError) as error:
            self.rejected[(kind, key)] = str(error)


def _has_a_plain_place(task: Task) -> bool:
    """Whether a pod on a node, in a job, may be renewed where it is: nothing but its status says
    where it belongs."""
    job = task.job
    return not (
        job is None
        or not job.has_group
        or job.policies
        or job.shadow
        or task.terminating
        or task.gated
    )
