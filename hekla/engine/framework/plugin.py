"""What a plugin is: a class whose methods are named after the hooks that it fills.

A plugin is made once a policy and opened once a cycle.  A hook that a class does not define is not
asked.  Filters and scores are handed whole tables and give whole vectors; order hooks give keys,
where the smaller goes first. Reference for how answers combine: scheduler-core 5.3.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from hekla.api.trees import Tree
from hekla.engine.framework.heap import Comparable
from hekla.engine.model.arrays import Bools, Rows
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import Amounts, Floats

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.queues.balance import Demand
    from hekla.engine.model.queues.queues import Queue
    from hekla.engine.model.reasons import Ceiling, Shortage
    from hekla.engine.model.tasks import Group, Job, SubJob, Task

MAX_SCORE = 100.0
PERMIT, ABSTAIN, REJECT = 1, 0, -1
BETWEEN_PLACEMENTS = (
    "queue_order",
    "overused",
    "allocatable",
    "prefilter",
    "job_ready",
    "allocated",
    "deallocated",
)
"""Hooks that are asked, or told, from one placement to the next."""


class Depends(enum.Enum):
    """What a filter or a score looks at, and so what one placement makes stale."""

    STATIC = "the pod class and node objects"
    NODE_ROW = "the load of the node itself"
    CLUSTER = "other nodes too"
    PEERS = "where the spread peers of a pod are"
    """For scores that know how each placement changes them (`Score.running`)."""


class Normalise(enum.Enum):
    """How raw scores become 0 to 100, over the candidates only."""

    NONE = "as they are"
    MAX = "100 is the largest"
    MAX_REVERSED = "100 is the smallest, by the largest"
    SPAN = "0 is the smallest, 100 the largest"


class Code(enum.IntEnum):
    """How a filter's "no" is meant."""

    UNSCHEDULABLE = 2
    """Evicting pods could help."""
    UNRESOLVABLE = 3
    """Nothing that leaves the node can help."""


Mask = Callable[["PodClass", NodeView, "Task | None"], "Bools | None"]
"""`[nodes]`, true where the pod may go; None where the filter does not concern this pod."""
Raw = Callable[["PodClass", NodeView, "Task | None"], "Floats | None"]
"""`[nodes]`, larger is better before normalisation says otherwise; None where the score does not
concern this pod."""


@dataclass(frozen=True, slots=True)
class Filter:
    """One reason why a node may be out of the question."""

    name: str
    reason: str
    code: Code
    depends_on: Depends
    mask: Mask
    plugin: str = ""
    detail: Callable[[PodClass, int], str] | None = None
    """A reason of its own for each node (by row), where the words depend on the node."""
    silent_after: str = ""
    """Another filter of the plugin: where that one refuses, this one does not say so too."""


class Running(Protocol):
    """A score of some candidates that is kept up to date while pods of one class are placed on
    them."""

    def now(self) -> Floats:
        """`[candidates]`; asked only while one of them has not left."""
        ...

    def placed(self, at: int) -> None:
        """A pod was placed on this candidate."""
        ...

    def left(self, at: int) -> None:
        """This candidate takes no more."""
        ...


@dataclass(frozen=True, slots=True)
class Score:
    """One view on which node is better."""

    name: str
    weight: float
    depends_on: Depends
    raw: Raw
    normalise: Normalise = Normalise.NONE
    batch: bool = True
    """Whether upstream computes it for all candidates at once; only the conformance runner asks."""
    running: Callable[[PodClass, NodeView, Task], Running | None] | None = None
    """For a score by peers: the same, from placement to placement; None where no placement of the
    class changes it."""


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """Base of a plugin's arguments; field names are renamed to the keys of the policy file."""

    made: ClassVar[frozenset[str]] = frozenset()
    """Fields that `extended` fills, and that are no keys of their own."""
    by_structure: ClassVar[frozenset[str]] = frozenset()
    """Fields whose value is read as a structure: names inside in any case, and of a number that
    should be whole the whole part."""

    @classmethod
    def accepts(cls, key: str) -> bool:
        """Whether a key that is no field is still meant for this plugin (families such as
        `binpack.resources.<name>`)."""
        return False

    def extended(self, rest: Tree) -> Arguments:
        """These arguments with the accepted extra keys taken in.  Called for every plugin, also
        where `rest` is empty: the place to refuse values.  Raises ValueError."""
        return self


class NoArguments(Arguments, frozen=True):
    """For plugins that read none."""


@dataclass(slots=True)
class Answer:
    """Why something was refused, for people and events."""

    reason: str
    message: str


@dataclass(slots=True)
class Victims:
    """A plugin's say on who may be evicted."""

    tasks: list[Task] = field(default_factory=list)
    vote: int = PERMIT


class Source(enum.Enum):
    """What the answers of hooks come from, beside the objects that they are handed."""

    ANYTHING = "anything, such as the clock or objects of a user's own"
    JOBS = "jobs and queues"
    NODES = "nodes and the pods on them"
    OWN_JOBS = "the queue that is asked about, and what its own jobs hold"
    PREEMPTOR = (
        "the preemptor's queue, namespace, priorities, class, labels, and what its job holds"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What a plugin reads.  Where that is little, the engine need not ask again.

    The defaults are right for every plugin.  A class that says more must keep to it: answers that
    come from elsewhere are not asked for again when that changes.
    """

    between_placements: Source = Source.ANYTHING
    """Of the hooks in `BETWEEN_PLACEMENTS`, for pods without claims and volumes.  JOBS: the node
    table may learn of several placements together."""
    queue_order: Source = Source.ANYTHING
    """OWN_JOBS: a queue keeps its place while other queues are served."""
    nodes: Source = Source.ANYTHING
    """Of filters and scores, for plain pods (`PodClass.plain`).  NODES: nodes that were chosen ahead
    in one cycle still hold in the next."""
    victims: Source = Source.ANYTHING
    """Of `preemptable` and `reclaimable`.  PREEMPTOR: many waiting pods of one kind are asked about
    once."""
    waiting_order: bool = False
    """Whether `job_order` of a job that holds nothing changes only when the job itself does."""
    clock: bool = False
    """Whether answers change while nothing but the time does."""
    each_pod: bool = False
    """Whether pods of one class are told apart: each is asked about, and told of, by itself."""


class Plugin:
    """Base of all plugins.  A subclass defines the hooks that it fills, those listed below.

    It is made once a policy and `open`ed once a cycle; hooks are asked only in between.  Hooks that
    ask may not change what they are handed; `allocated` and `deallocated` keep a plugin's own sums
    up to date.  Amounts are in millicores for cpu, bytes for memory, and thousandths of any other
    resource (`hekla.engine.resources`).

    A key of an order hook is anything that can be compared with what the same hook gives for
    others: the smaller goes first.  In the policy's order, the first plugin whose keys differ
    decides; creation time and UID come last.
    """

    name: ClassVar[str]
    Arguments: ClassVar[type[Arguments]] = NoArguments
    reads: Reads = Reads()
    """Not inherited: a subclass may override hooks, so it says for itself."""
    spares_victims: ClassVar[bool] = False
    """Whether its `victim_tasks` names those that it lets go, out of the victims of others, and
    asks for nobody itself."""

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        if "reads" not in vars(cls):
            cls.reads = Reads()

    arguments: Any
    """As the policy gives them, an `Arguments`; a plugin that declares them as its own
    (`arguments: BinPackArguments`) has their use checked."""

    def __init__(self, arguments: msgspec.Struct, flags: Mapping[str, bool]) -> None:
        self.arguments = arguments
        self.flags = flags

    def open(self, session: CycleView) -> None:
        """A cycle begins.  Work out here what the hooks need: shares, sums, indexes."""

    def close(self, session: CycleView) -> None:
        """A cycle ends: the last moment to write conditions, events and metrics."""

    if TYPE_CHECKING:
        # Hooks.  They exist at run time only where a plugin defines them.

        # Whose turn it is

        def job_order(self, job: Job) -> Comparable:
            """A key for the order of jobs within a queue; asked whenever a job is put in line.

            `return -job.priority` serves high priorities first.
            """

        def queue_order(self, queue: Queue) -> Comparable:
            """A key for the order of queues; asked at every turn.

            `return self.share[queue.name]` serves the queue that has the least of its share.
            """

        def task_order(self, task: Task) -> Comparable:
            """A key for the order of a job's tasks; asked once for each waiting task of a job.

            `return -task.priority`.
            """

        def sub_job_order(self, sub_job: SubJob) -> Comparable:
            """A key for the order of a job's sub-groups.

            `return sub_job.is_ready()` serves those first that still lack pods.
            """

        def victim_queue_order(self, queue: Queue, preemptor: Queue) -> Comparable:
            """A key for the order in which queues lose pods to `preemptor`: the smaller loses first.

            `return -self.relation(queue, preemptor)` takes from near relatives first.
            """

        # What a job may do

        def job_valid(self, job: Job) -> Answer | None:
            """Why the job is left out of the cycle, or None.  Asked by each action before the job
            gets a turn; the first answer counts.

            `return Answer("NotEnoughPods", "2 of 4 pods exist") if len(job.tasks) < 4 else None`
            """

        def foresee(self, jobs: Sequence[Job]) -> Generator[None, None, Mapping[str, float]]:
            """For estimates: from when on `job_valid` will let waiting jobs start, who are handed over
            in their order, in seconds since 1970 by key; without those of whom that is not known.
            It may pause.  Optional: without it there is no estimate of a job that the plugin's
            `job_valid` refuses.
            """

        def job_ready(self, job: Job) -> bool:
            """Whether what the job holds is enough to bind it.  Every plugin has to agree.  Asked
            after each placement.

            `return job.counts.ready >= job.min_available`
            """

        def sub_job_ready(self, sub_job: SubJob) -> bool:
            """As `job_ready`, for a sub-group of a job that has sub-group policies."""

        def tasks_until_ready(self, sub_job: SubJob) -> int:
            """How many tasks can be placed before `job_ready` (or `sub_job_ready`) could become
            true.  Optional: it lets so many be placed at once; 1 or less says nothing.

            `return job.min_available - job.counts.ready`
            """

        def job_pipelined(self, job: Job) -> int:
            """PERMIT where the job holds enough once releasing pods have gone, REJECT where it does
            not, ABSTAIN.  Within a tier a REJECT decides; the first tier that permits does, too.

            `return PERMIT if job.counts.ready + job.counts.waiting >= job.min_available else REJECT`
            """

        def sub_job_pipelined(self, sub_job: SubJob) -> int:
            """As `job_pipelined`, for a sub-group of a job that has sub-group policies."""

        def job_starving(self, job: Job) -> bool:
            """Whether others may be evicted for the job.  Only the first tier that has the hook is
            asked, and its plugins have to agree.

            `return job.counts.ready < job.min_available`
            """

        def job_enqueueable(self, job: Job) -> int:
            """PERMIT, ABSTAIN or REJECT: may the job's pods be made?  Asked by enqueue; votes count
            as for `job_pipelined`.  A plugin that rejects says why with `session.refuse`.

            `return PERMIT if self.room.covers(job.min_resources) else REJECT`
            """

        def job_enqueued(self, job: Job) -> None:
            """The job was let in: count what it will need."""

        # What a queue may have

        def overused(self, queue: Queue) -> bool:
            """Whether the queue gets no turn now.  One plugin is enough.  Asked at every turn.

            `return self.allocated[queue.name] >= self.deserved[queue.name]`
            """

        def allocatable(self, queue: Queue, task: Task) -> bool:
            """Whether the queue may take this task now.  Every plugin has to agree.  Asked before
            each placement.

            `return self.allocated[queue.name] + task.request <= self.limit[queue.name]`
            """

        def allocatable_count(self, queue: Queue, task: Task, limit: int) -> int:
            """How many tasks like this one the queue may take in a row, 0 to `limit`.  Optional:
            without it tasks are asked about one by one.

            `return min(limit, int(self.left[queue.name] / task.request.cpu))`
            """

        def preemptive(self, queue: Queue, tasks: Sequence[Task]) -> bool:
            """Whether the queue may take room from other queues for these tasks.  Every plugin has
            to agree.

            `return self.allocated[queue.name] + total(tasks) <= self.deserved[queue.name]`
            """

        def balanced(self, demand: Demand, victim: Task, going: Mapping[str, Amounts]) -> bool:
            """Whether queues are no worse balanced when the victim's room goes to the demand.  `going`:
            queue -> amounts that it still holds but is to lose.  Every plugin has to agree.
            """

        # The numbers behind a refusal, for people

        def quota_shortages(self, queue: Queue, asked: Amounts) -> list[Shortage]:
            """Why the queue may not take so much more: resource, limit, held, asked."""

        def quota_ceilings(self, queue: Queue) -> list[Ceiling]:
            """What the queue, and those above it, may hold at most as long as nobody changes a queue,
            for estimates of when jobs start.  Optional: without it quotas are not foreseen."""

        def party_ceilings(self, job: Job) -> list[Ceiling]:
            """The same for whoever the job counts against besides its queue, such as its user.  With
            it `foresee` leaves out nobody because of what they hold now."""

        def reclaim_shortages(self, queue: Queue, asked: Amounts) -> list[Shortage]:
            """Why the queue may not take so much from others."""

        def beyond_capability(self, queue: Queue, asked: Amounts, entering: bool) -> list[str]:
            """Names of the resources of which so much more would go past what the queue may ever
            hold; `entering` counts jobs that were let in as if they held their minimum."""

        # Who is evicted

        def preemptable(self, preemptor: Task, candidates: list[Task]) -> Victims:
            """Which of the candidates, pods on one node and of the preemptor's queue, may be evicted
            for it.  Within a tier only those count that all name; the first tier with a name
            decides.

            `return Victims([one for one in candidates if one.priority < preemptor.priority])`
            """

        def reclaimable(self, preemptor: Task, candidates: list[Task]) -> Victims:
            """As `preemptable`, where the candidates are of other queues."""

        def evictable(self, kind: str, job: Job, candidates: list[Task]) -> Victims:
            """As `preemptable`, for a whole gang: `kind` is "gangpreempt" or "gangreclaim", the
            candidates are on all nodes of a domain."""

        def lesser(self, victim: Job, job: Job) -> bool:
            """Whether gangpreempt may look for room for `job` at `victim`'s, a job of the same queue.
            Every plugin that has the hook has to agree; where none has it, a lower priority decides.

            `return self.level(victim) > self.level(job)`
            """

        def victim_tasks(self, candidates: list[Task]) -> list[Task]:
            """Which of the running pods should leave, for shuffle; nobody claims their room.

            `return [one for one in candidates if self.overheated(one.row)]`
            """

        def spares(self, victim: Task, preemptor: Job | None) -> str:
            """Why the pod may not be evicted now, as a clause, or "".  Asked by every action that
            evicts, whatever the tiers say: of each candidate, and again when its turn comes and
            those before it are on their way out.  `preemptor` is None where nobody claims the room.

            `return "it has just started" if self.now - victim.start < 60 else ""`
            """

        def fragmentation(self, rows: Rows) -> Floats:
            """`[rows]`: how much of what is free on these nodes cannot be used by the pods that come.
            The action defragment moves pods so that the sum over all nodes falls."""

        def victim_order(self, victim: Task) -> Comparable:
            """A key for the order in which victims of one queue leave, before the order of their
            jobs: the smaller leaves first.

            `return victim.priority, self.loss(victim)`
            """

        def eviction_notice(self, victim: Task) -> float:
            """Seconds between the decision to evict a pod and its eviction; the longest answer
            counts.  The pod is told, and its room is promised meanwhile."""

        def eviction_grace(self, victim: Task) -> int:
            """Seconds between SIGTERM and SIGKILL of an evicted pod; 0 for the pod's own.  The first
            answer counts."""

        def eviction_decided(self, victim: Task, preemptor: Job | None) -> None:
            """A pod is to be evicted, and that is not undone any more."""

        # Where pods may go

        def prefilter(self, task: Task) -> str:
            """Why no node at all will do, or "".  Asked once for each group of like tasks.

            `return "" if task.claims else "needs a resource demand"`
            """

        def filters(self) -> Iterable[Filter]:
            """Reasons why nodes may be out, in the order in which they speak.  Asked once a policy.

            `yield Filter("arch", "wrong architecture", Code.UNRESOLVABLE, Depends.STATIC, self.arch)`
            """

        def scores(self) -> Iterable[Score]:
            """Views on which node is better.  Asked once a policy.

            `yield Score("spare", weight=2.0, depends_on=Depends.NODE_ROW, raw=self.spare)`
            """

        def predicate(self, pods: PodClass, nodes: NodeView) -> Bools:
            """`[nodes]`: a single filter in short form; `predicate_reason`, `predicate_code` and
            `predicate_depends_on` of the class say the rest.

            `return nodes.allocatable(nodes.table.space.column("nvidia.com/gpu")) > 0`
            """

        def score(self, pods: PodClass, nodes: NodeView) -> Floats:
            """`[nodes]`, 0 to 100: a single score in short form; `score_depends_on` of the class
            says the rest.

            `return 100.0 * nodes.used(CPU_COLUMN) / nodes.allocatable(CPU_COLUMN)`
            """

        # In which part of the network

        def hyper_node_gradient(self, group: Group, domain: str, purpose: str) -> list[list[str]]:
            """Domains inside `domain` to try for a job or sub-group: lists of names, each tried as
            a whole before the next.  `purpose` is "allocate" or "evict".

            `return [racks, blocks, [domain]]`
            """

        def hyper_node_order(self, sub_job: SubJob, domains: list[str]) -> dict[str, float]:
            """Domain -> score, larger is better, for domains that hold the sub-group."""

        def hyper_node_rank(self, sub_job: SubJob, domains: list[str]) -> list[tuple[float, float]]:
            """`[domains]`: what `hyper_node_order` sorts by, known before any is tried: a score, and
            what is added between equal ones.  Optional; it saves trials."""

        def hyper_node_bounds(
            self, sub_job: SubJob, domains: list[str], roomy: Bools | None
        ) -> list[float]:
            """`[domains]`: the most that `hyper_node_order` could give within each.  `roomy` is
            `[domains of the tree]`, those that have room; None where all may.  Optional; it saves
            trials."""

        # What happened

        def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
            """`count` tasks like `task` hold room from now on, `total` together.

            `self.held[job.queue] += total`
            """

        def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None:
            """The same tasks hold it no longer: their placement was undone, or they are evicted."""


def defines(plugin: Plugin, hook: str) -> bool:
    """Whether the plugin fills a hook."""
    return callable(getattr(plugin, hook, None))


def filter_of_predicate(plugin: Plugin, name: str, refusal: str) -> Filter:
    """The filter of a plugin with a plain `predicate(pods, nodes) -> mask`; `refusal` is its reason
    where the plugin names none."""

    def mask(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        return plugin.predicate(pods, nodes)

    return Filter(
        name=name,
        reason=getattr(plugin, "predicate_reason", refusal),
        code=getattr(plugin, "predicate_code", Code.UNSCHEDULABLE),
        depends_on=getattr(plugin, "predicate_depends_on", Depends.CLUSTER),
        mask=mask,
        plugin=name,
    )


def score_of(plugin: Plugin, name: str) -> Score:
    """The score of a plugin with a plain `score(pods, nodes) -> [nodes]`."""

    def raw(pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        return plugin.score(pods, nodes)

    return Score(name, 1.0, getattr(plugin, "score_depends_on", Depends.CLUSTER), raw, batch=False)
