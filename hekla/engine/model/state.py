"""The cluster as the engine knows it: tables that events change in place.

Whoever feeds the engine calls `upsert_*` and `remove_*` as objects come and go, with the typed
objects of `hekla.api` or with their JSON trees.  Nothing here raises for what an object says: one
that cannot be understood is left out, and `rejected` tells why, in words for the person who wrote
it.  Reference: scheduler-core 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import wraps

from hekla.api.names import DEFAULT_QUEUE, GROUP_QUEUE_NAME
from hekla.api.trees import Tree
from hekla.engine.model import resources
from hekla.engine.model.claims.allocator import KINDS as CLAIM_KINDS
from hekla.engine.model.claims.allocator import DeviceAllocator
from hekla.engine.model.evictions.log import EvictionLog
from hekla.engine.model.evictions.notices import EvictionNotices
from hekla.engine.model.jobs import JobTable
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.podclass import PodClasses, TermTable
from hekla.engine.model.pods import PodTable
from hekla.engine.model.reading import (
    PREEMPTABLE,
    TRUE,
    key_of,
    node_facts,
    policy_of,
    read_queue,
    revocable_zone,
    says_as_sent,
    sent_status,
    stated_by,
    texts,
    title_of,
    topology_of,
    tree_of_object,
    waiting_time,
)
from hekla.engine.model.resources import ResourceSpace
from hekla.engine.model.shapes import check
from hekla.engine.model.shards import Shard
from hekla.engine.model.spread_peers import KINDS as PEER_KINDS
from hekla.engine.model.tasks import NOWHERE, Status, Task
from hekla.engine.model.time.durations import instant, zone
from hekla.engine.model.time.reservations import KIND as RESERVATION
from hekla.engine.model.time.reservations import Reservations
from hekla.engine.model.time.walltimes import stated_walltime
from hekla.engine.model.transfers import Transfers, wants_of
from hekla.engine.model.volumes import KINDS as VOLUME_KINDS
from hekla.engine.model.volumes import VolumeBinder


def upserts(
    kind: str,
) -> Callable[[Callable[[State, Tree], None]], Callable[[State, object], None]]:
    """An update of the state that is handed the tree of an object of this kind; one that cannot be
    understood is left out."""

    def of_trees(upsert: Callable[[State, Tree], None]) -> Callable[[State, object], None]:
        @wraps(upsert)
        def guarded(state: State, obj: object) -> None:
            state.upsert_or_reject(kind, obj, upsert)

        return guarded

    return of_trees


class State:
    """Nodes, jobs, queues and what else the plugins read.

    - `scheduler_names`: whose unassigned pods are ours; None means everybody's.
    - `bare_pod_schedulers`: names whose pods need no PodGroup; each such pod is a job of its own
      (`namespace/pod`, minimum 1) in the default queue.
    - `implied_groups`: whether a pod of ours that names no PodGroup, has no owner and asks nothing of
      a group is one by itself (`hekla.podrules.plain_pods`), in the queue of its namespace.
    - `time_zone`: in which the policy's times of day are meant; the engine never asks the machine.
    - `shard_mode`, `shard_name`: what NodeShards mean (`none`, `hard`, `soft`), and which one is
      this scheduler's.
    - `lifts_gates`: whether pods that only their queue's gate holds are let go (gate
      SchedulingGatesQueueAdmission).
    - `scores_storage`: whether nodes are preferred by how their volumes would be used (gate
      StorageCapacityScoring).
    """

    def __init__(
        self,
        *,
        scheduler_names: Iterable[str] | None = None,
        bare_pod_schedulers: Iterable[str] = (),
        default_queue: str = "default",
        implied_groups: bool = False,
        time_zone: str = "UTC",
        lifts_gates: bool = False,
        scores_storage: bool = False,
        shard_mode: str = "none",
        shard_name: str = "volcano",
    ) -> None:
        self.default_queue = default_queue
        self.zone = zone(time_zone)
        self.lifts_gates = lifts_gates
        self.scores_storage = scores_storage
        self.shard = Shard(shard_mode, shard_name)
        self.space = ResourceSpace()
        self.terms = TermTable()
        self.classes = PodClasses(self.space, self.terms)
        self.nodes = NodeTable(self.space, self.terms)
        self.job_table = JobTable()
        self.jobs = self.job_table.by_key
        self.queues = self.job_table.queues
        self.active = self.job_table.active
        self.unreported = self.job_table.unreported
        self.back_off = self.job_table.back_off
        self.others: dict[str, dict[str, Tree]] = {}
        """Objects that only some plugins read, as JSON trees: kind -> key -> tree."""
        self.others_version = 0
        self.edge = math.inf
        """The next moment at which a cycle may decide something though nothing has happened: a
        window of a reservation opens or closes, or a plugin has asked for it."""
        self.metered = True
        """Whether anybody reads the metrics of its cycles."""
        self.reservations = Reservations(self.nodes, self.queues)
        self.transfers = Transfers()
        self.eviction_log = EvictionLog()
        self.eviction_notices = EvictionNotices()
        self.claims = DeviceAllocator(self)
        self.pods = PodTable(
            self.nodes,
            self.job_table,
            self.classes,
            self.terms,
            self.claims.extended.imply,
            self.transfers,
            self.eviction_notices,
            None if scheduler_names is None else frozenset(scheduler_names),
            frozenset(bare_pod_schedulers),
            default_queue,
            implied_groups,
            self._queue_of,
        )
        self.tasks = self.pods.by_key
        self.volumes = VolumeBinder(self)
        self.ask_extender: Callable[[str, Tree, float], object] | None = None
        """Posts JSON to an address within so many seconds and gives the reply's; raises OSError or
        ValueError.  For `extender`."""
        self.priority_annotations: dict[str, dict[str, str]] = {}
        """PriorityClass -> its annotations."""
        self.rejected: dict[tuple[str, str], str] = {}
        """What was left out and why: (kind, key) -> reason."""
        self.version = 0
        self.cycle = 0
        self.hyper_nodes: Tree | None = None
        """HyperNodes as ready-made sets, in place of the objects."""
        self.hyper_version = 0
        self.tree: object = None
        """The HyperTree of `hypernodes.tree_of`, as made last."""
        self.hooks: object = None
        """The policy's plugins, as last used on this state."""
        self.settled: tuple[int, object] | None = None
        """Version and plugins of the last cycle: when nothing moved since, the next one has nothing
        to say."""
        self.nominated: list[str] = []
        """Jobs that others were evicted for and that wait for the room: they are served first, so
        that they are the ones to get it."""
        self.remembered: dict[str, float] = {}
        """Times that plugins keep beyond a change of the policy: what -> when."""
        self._compact_at = 1024

    def use_extender(self, ask: Callable[[str, Tree, float], object]) -> None:
        """Hand in what reaches extenders: the engine itself does no I/O."""
        self.ask_extender = ask

    # ----------------------------------------------------------------------------------------- pods

    @upserts("Pod")
    def upsert_pod(self, tree: Tree) -> None:
        """A pod came or changed: its task joins its job, which the next cycle looks at if it has
        something to decide."""
        self.version += self.pods.upsert(tree)

    def remove_pod(self, pod: object) -> None:
        """A pod is gone.  Takes the object or its key."""
        key = self._gone("Pod", pod)
        self.version += self.pods.remove(key)

    # ---------------------------------------------------------------------------------------- nodes

    @upserts("Node")
    def upsert_node(self, tree: Tree) -> None:
        """A node came or changed."""
        facts = node_facts(tree)
        before = self.nodes.version
        row = self.nodes.rows.get(facts.name)
        self.transfers.node_changed(None if row is None else self.nodes.facts[row], facts)
        self.nodes.upsert(facts)
        self.version += self.nodes.version != before

    def remove_node(self, node: object) -> None:
        """A node is gone.  Takes the object or its name."""
        name = self._gone("Node", node)
        self.nodes.remove(name)
        self.transfers.forget()
        self.version += 1

    # ----------------------------------------------------------------------------------- pod groups

    @upserts("PodGroup")
    def upsert_pod_group(self, tree: Tree) -> None:
        """A PodGroup came or changed."""
        meta = tree.get("metadata") or {}
        spec = tree.get("spec") or {}
        status = tree.get("status") or {}
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
        job = self.job_table.of_group(key_of(tree))
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
        job.walltime = stated_walltime(job.annotations)
        self.reservations.follow_job(job.key, annotations)
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
        self.job_table.mark_changed(job)

    def remove_pod_group(self, group: object) -> None:
        """A PodGroup is gone.  Takes the object or its key."""
        key = self._gone("PodGroup", group)
        job = self.jobs.get(key)
        if job is None:
            return
        self.version += 1
        self.transfers.forget()
        self.reservations.follow_job(key, {})
        job.has_group = False
        job.stated = b""
        job.topology = None
        job.policies = ()
        job.rebuild_sub_jobs()
        self.job_table.mark_changed(job)
        if not job.tasks:
            self.job_table.drop(job)

    # -------------------------------------------------------------------------- queues and the rest

    @upserts("Queue")
    def upsert_queue(self, tree: Tree) -> None:
        """A Queue came or changed."""
        queue = read_queue(tree)
        self.version += 1
        self.transfers.queue_changed(self.job_table.put_queue(queue), queue)

    def remove_queue(self, queue: object) -> None:
        """A Queue is gone.  Takes the object or its name."""
        name = self._gone("Queue", queue)
        if self.job_table.remove_queue(name):
            self.version += 1
            self.transfers.forget()

    @upserts("PriorityClass")
    def upsert_priority_class(self, tree: Tree) -> None:
        """A PriorityClass came or changed."""
        check("PriorityClass", tree)
        value, default = int(tree.get("value", 0)), bool(tree.get("globalDefault"))
        marks = dict(texts(tree.get("metadata") or {}, "annotations"))
        self.priority_annotations[key_of(tree)] = marks
        if self.job_table.put_priority_class(key_of(tree), value, default):
            self.transfers.forget()
        self.version += 1

    def remove_priority_class(self, priority: object) -> None:
        """A PriorityClass is gone.  Takes the object or its name."""
        name = priority if isinstance(priority, str) else key_of(tree_of_object(priority))
        self.job_table.remove_priority_class(name)
        self.priority_annotations.pop(name, None)
        self.transfers.forget()
        self.version += 1

    @upserts("Namespace")
    def upsert_namespace(self, tree: Tree) -> None:
        """A Namespace came or changed; its labels may be selected by inter-pod terms."""
        name = key_of(tree)
        self.terms.relabel(name, dict((tree.get("metadata") or {}).get("labels") or {}))
        self.pods.count_new_terms()
        self.upsert_other("Namespace", tree)

    def _queue_of(self, namespace: str) -> str:
        """The queue of PodGroups of this namespace that name none, as admission fills it in."""
        meta = self.others.get("Namespace", {}).get(namespace, {}).get("metadata") or {}
        return texts(meta, "annotations").get(GROUP_QUEUE_NAME) or DEFAULT_QUEUE

    def upsert_other(self, kind: str, obj: object) -> None:
        """Any other object that a plugin may read: ResourceQuota, PodDisruptionBudget, HyperNode, a
        volume claim, ..."""
        self.upsert_or_reject(kind, obj, lambda state, tree: state._upsert_other(kind, tree))

    def _upsert_other(self, kind: str, tree: Tree) -> None:
        try:
            check(kind, tree)
        except ValueError:
            if key_of(tree) in self.others.get(kind, {}):
                self.remove_other(kind, key_of(tree))
            raise
        if kind in PEER_KINDS:
            self.terms.peers.changed(kind, key_of(tree), tree)
            # It only says where a pod had rather go: nothing that waits can start because of it.
            return
        if kind == RESERVATION and not self.reservations.upsert(key_of(tree), tree):
            return  # Its status has come back: nothing depends on that.
        # Kept for long, so it must not change when whoever fed it lets go of the rest of its own.
        kept = {**tree, "metadata": dict(tree.get("metadata") or {})}
        self.others.setdefault(kind, {})[key_of(tree)] = kept
        self._other_changed(kind, key_of(tree), kept)

    def remove_other(self, kind: str, obj: object) -> None:
        key = self._gone(kind, obj)
        if kind in PEER_KINDS:
            self.terms.peers.changed(kind, key, None)
            return
        if kind == RESERVATION:
            self.reservations.remove(key)
        self.others.get(kind, {}).pop(key, None)
        self._other_changed(kind, key, None)

    def _other_changed(self, kind: str, key: str, tree: Tree | None) -> None:
        self.version += 1
        self.others_version += 1
        if kind in CLAIM_KINDS:
            self.claims.changed(kind, key, tree)
        self.volumes.version += kind in VOLUME_KINDS
        self.hyper_version += kind == "HyperNode"

    def upsert_or_reject(
        self, kind: str, obj: object, upsert: Callable[[State, Tree], None]
    ) -> None:
        """Hand the tree of an object to `upsert`; where that fails, `rejected` says why."""
        try:
            tree = tree_of_object(obj)
            key = key_of(tree)
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            self.rejected[(kind, "?")] = f"not an object: {error}"
            return
        self.rejected.pop((kind, key), None)
        try:
            upsert(self, tree)
        except (AttributeError, TypeError, ValueError, KeyError, OverflowError) as error:
            self.rejected[(kind, key)] = str(error)

    def _gone(self, kind: str, obj: object) -> str:
        """The key of what is gone, given as the object or its key; it is not rejected any more."""
        key = obj if isinstance(obj, str) else key_of(tree_of_object(obj))
        self.rejected.pop((kind, key), None)
        return key

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
        self.pods.set_status(task, Status.PENDING)

    def evict_failed(self, pod: str) -> None:
        """The API server refused an eviction: the pod runs on."""
        task = self.tasks.get(pod)
        if task is None or task.status is not Status.RELEASING or task.terminating:
            return
        self.version += 1
        self.eviction_notices.given.pop(pod, None)
        self.keep(task)

    def keep(self, task: Task) -> None:
        """A pod that was to be evicted runs on."""
        self.nodes.change(task, task.row, Status.RELEASING, Status.RUNNING)
        self.pods.set_status(task, Status.RUNNING)

    def condition_failed(self, pod: str) -> None:
        """A pod's condition could not be written: what was not written is decided again."""
        task = self.tasks.get(pod)
        if task is not None:
            task.condition = None

    # --------------------------------------------------------------------------------------- cycles

    def count_changes(self) -> None:
        """Count again what changed; a cycle begins with it and costs as much as there were changes."""
        self.job_table.count_changed()
        if self.terms.peers.uncounted:
            self.terms.peers.count(self.nodes.tasks)
        self.claims.extended.lend(self.nodes)
        self.nodes.widen()
        self._compact()

    def _compact(self) -> None:
        """Drop what nobody refers to any more, once it is the larger part."""
        if self.nodes.dead > 64 and self.nodes.dead > len(self.nodes) // 2:
            self.pods.compact_nodes()
        if len(self.classes.by_key) + len(self.terms.label_sets) > self._compact_at:
            self.pods.compact_classes()
            self._compact_at = 1024 + 2 * (len(self.classes.by_key) + len(self.terms.label_sets))
