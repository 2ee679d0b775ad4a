"""What a plugin is: a class whose methods are named after the hooks that it fills.

A plugin is made once a policy and opened once a cycle.  A hook that a class does not define is not
asked.  Filters and scores are handed whole tables and give whole vectors; order hooks give keys,
where the smaller goes first. Reference for how answers combine: scheduler-core 5.3.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodes import NodeTable, NodeView
from hekla.engine.model.resources import Amounts, Floats

if TYPE_CHECKING:
    from hekla.engine.framework.session import Session
    from hekla.engine.model.explanations import Shortage
    from hekla.engine.model.podclass import PodClass
    from hekla.engine.model.queues.balance import Claim
    from hekla.engine.model.queues.queues import Queue
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


@dataclass(frozen=True, slots=True)
class Filter:
    """One reason why a node may be out of the question."""

    name: str
    reason: str
    code: Code
    depends_on: Depends
    mask: Callable[[PodClass, NodeView, Task | None], Bools | None]
    """`[nodes]`, true where the pod may go; None where it does not concern this pod."""
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
    raw: Callable[[PodClass, NodeView, Task | None], Floats | None]
    """`[nodes]`, larger is better before normalisation says otherwise; None where it does not
    concern this pod."""
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

    def extended(self, rest: Mapping[str, Any]) -> Arguments:
        """These arguments with the accepted extra keys taken in.  Raises ValueError."""
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


class Plugin:
    """Base of all plugins.  Subclasses define the hooks they fill; those listed below are known."""

    name: ClassVar[str]
    Arguments: ClassVar[type[Arguments]] = NoArguments
    spares_victims: ClassVar[bool] = False
    """Whether its `victim_tasks` names those that it lets go, out of the victims of others, and
    asks for nobody itself."""
    time_dependent: ClassVar[bool] = False
    """Whether its answers change while nothing but the clock moves."""
    minds_no_nodes: ClassVar[bool] = False
    """Whether what it answers between two placements (`BETWEEN_PLACEMENTS`), and what it does when
    told of one, comes from jobs and queues alone, for pods without claims and volumes.  Then the
    node table may hear of several placements together, and of a pod that is placed and bound at
    once only that it is bound.  Not inherited: a class that fills a hook says it for itself.
    """

    judges_by_nodes: bool = False
    """Whether its filters and scores of plain pods (`PodClass.plain`) come from nodes and the pods
    on them alone, not from the clock, the cycle, jobs or other objects.  Then nodes that were
    chosen ahead in one cycle hold in the next.  Not inherited.
    """

    one_at_a_time: bool = False
    """Whether each pod is a case of its own to it, also among those of a class: it is asked about
    each, and hears of each by itself."""

    asks_alike: ClassVar[bool] = False
    """Whether its `preemptable` and `reclaimable` take of the claimer only its queue, namespace,
    priorities, class, labels and marks and what its job holds.  Then many pods of one kind that
    wait are asked about once.  Not inherited.
    """

    orders_queues_alone: ClassVar[bool] = False
    """Whether its `queue_order` comes from the queue and what its own jobs hold, so that a queue
    keeps its place while others are served.  Not inherited.
    """

    def __init__(self, arguments: Any, flags: Mapping[str, bool]) -> None:
        self.arguments = arguments
        self.flags = flags

    def open(self, session: Session) -> None:
        """A cycle begins."""

    def close(self, session: Session) -> None:
        """A cycle ends: the last moment to write conditions."""

    if TYPE_CHECKING:
        # Hooks.  They exist at run time only where a plugin defines them.
        def job_order(self, job: Job) -> Any: ...
        def queue_order(self, queue: Queue) -> Any: ...
        def task_order(self, task: Task) -> Any: ...
        def sub_job_order(self, sub_job: SubJob) -> Any: ...
        def victim_queue_order(self, queue: Queue, claimer: Queue) -> Any: ...
        def job_valid(self, job: Job) -> Answer | None: ...
        def job_ready(self, job: Job) -> bool: ...
        def sub_job_ready(self, sub_job: SubJob) -> bool: ...
        def tasks_until_ready(self, sub_job: SubJob) -> int: ...
        def job_pipelined(self, job: Job) -> int: ...
        def sub_job_pipelined(self, sub_job: SubJob) -> int: ...
        def job_starving(self, job: Job) -> bool: ...
        def job_enqueueable(self, job: Job) -> int: ...
        def job_enqueued(self, job: Job) -> None: ...
        def overused(self, queue: Queue) -> bool: ...
        def allocatable(self, queue: Queue, task: Task) -> bool: ...
        def allocatable_count(self, queue: Queue, task: Task, limit: int) -> int: ...
        def preemptive(self, queue: Queue, tasks: Sequence[Task]) -> bool: ...
        def quota_shortages(self, queue: Queue, asked: Amounts) -> list[Shortage]: ...
        def beyond_capability(self, queue: Queue, asked: Amounts, entering: bool) -> list[str]: ...
        def reclaim_shortages(self, queue: Queue, asked: Amounts) -> list[Shortage]: ...
        def balanced(self, claim: Claim, victim: Task, going: Mapping[str, Amounts]) -> bool: ...
        def preemptable(self, claimer: Task, candidates: list[Task]) -> Victims: ...
        def reclaimable(self, claimer: Task, candidates: list[Task]) -> Victims: ...
        def evictable(self, kind: str, job: Job, candidates: list[Task]) -> Victims: ...
        def victim_tasks(self, candidates: list[Task]) -> list[Task]: ...
        def prefilter(self, task: Task) -> str: ...
        def filters(self) -> Iterable[Filter]: ...
        def scores(self) -> Iterable[Score]: ...
        def predicate(self, pods: PodClass, nodes: NodeView) -> Bools: ...
        def score(self, pods: PodClass, nodes: NodeView) -> Floats: ...
        def hyper_node_gradient(
            self, group: Group, domain: str, purpose: str
        ) -> list[list[str]]: ...
        def hyper_node_order(self, sub_job: SubJob, domains: list[str]) -> dict[str, float]: ...
        def hyper_node_rank(
            self, sub_job: SubJob, domains: list[str]
        ) -> list[tuple[float, float]]: ...
        def hyper_node_bounds(
            self, sub_job: SubJob, domains: list[str], roomy: Bools | None
        ) -> list[float]: ...
        def allocated(self, job: Job, task: Task, total: Amounts, count: int) -> None: ...
        def deallocated(self, job: Job, task: Task, total: Amounts, count: int) -> None: ...


def defines(plugin: Plugin, hook: str) -> bool:
    """Whether the plugin fills a hook."""
    return callable(getattr(plugin, hook, None))


__all__ = [
    "ABSTAIN",
    "MAX_SCORE",
    "PERMIT",
    "REJECT",
    "Answer",
    "Arguments",
    "Code",
    "Depends",
    "Filter",
    "NoArguments",
    "NodeTable",
    "NodeView",
    "Normalise",
    "Plugin",
    "Running",
    "Score",
    "Victims",
    "defines",
]
