"""A user's own plugins: made safe to run, and made simple to write.

`guarded` turns a user's class into one that the policy can list.  Whatever the class raises or
answers amiss stops no cycle: the hook gives the answer that does no harm (a filter says no, an
order says nothing, nobody is evicted), and the session's problems say whose fault it was, with file
and line.  `SimplePlugin` is for those who do not want to think in vectors: it is asked about one
pod and one node at a time, in plain words.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
import traceback
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hekla.engine.framework.faults import without_addresses
from hekla.engine.framework.plugin import (
    ABSTAIN,
    Answer,
    Arguments,
    Code,
    Depends,
    Filter,
    NoArguments,
    Plugin,
    Reads,
    Score,
    Victims,
    filter_of_predicate,
    score_of,
)
from hekla.engine.model.arrays import Bools
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.resources import MEMORY, PODS, Amounts, Floats
from hekla.engine.model.tasks import Task

if TYPE_CHECKING:
    from hekla.engine.framework.view import CycleView
    from hekla.engine.model.podclass import PodClass


FAULTS = (Exception, SystemExit)
"""What a user's code may raise; `sys.exit()` in a plugin ends its answer, not the scheduler."""


class CustomPluginError(ValueError):
    """The class is no plugin; the text says why, for whoever wrote it."""


# -------------------------------------------------------------------------------------- plain views


class Pod:
    """One pod that wants a node."""

    __slots__ = ("_task",)

    def __init__(self, task: Task) -> None:
        self._task = task

    @property
    def name(self) -> str:
        return self._task.name

    @property
    def namespace(self) -> str:
        return self._task.namespace

    @property
    def labels(self) -> Mapping[str, str]:
        return MappingProxyType(self._task.labels.labels)

    @property
    def annotations(self) -> Mapping[str, str]:
        return MappingProxyType(self._task.annotations)

    @property
    def priority(self) -> int:
        return self._task.priority

    @property
    def role(self) -> str:
        """The task of the job that it belongs to (`volcano.sh/task-spec`)."""
        return self._task.role

    @property
    def job(self) -> str:
        """`namespace/name` of its PodGroup."""
        return self._task.job.key if self._task.job is not None else ""

    @property
    def queue(self) -> str:
        return self._task.job.queue if self._task.job is not None else ""

    @property
    def requests(self) -> dict[str, float]:
        """Cores, bytes, and whole units of everything else."""
        return plain(self._task.request.amounts)


class Node:
    """One node, as it is at this moment of the cycle."""

    __slots__ = ("_row", "_table")

    def __init__(self, table: NodeTable, row: int) -> None:
        self._table = table
        self._row = row

    @property
    def name(self) -> str:
        return self._table.names[self._row]

    @property
    def labels(self) -> Mapping[str, str]:
        facts = self._table.facts[self._row]
        return MappingProxyType(facts.labels) if facts is not None else {}

    @property
    def annotations(self) -> Mapping[str, str]:
        """Those with `volcano.sh/` in the key; the engine keeps no others."""
        facts = self._table.facts[self._row]
        return MappingProxyType(facts.annotations) if facts is not None else {}

    @property
    def taints(self) -> tuple[str, ...]:
        facts = self._table.facts[self._row]
        return tuple(str(taint) for taint in facts.taints) if facts is not None else ()

    @property
    def allocatable(self) -> dict[str, float]:
        return self._of(self._table.allocatable)

    @property
    def used(self) -> dict[str, float]:
        return self._of(self._table.used)

    @property
    def idle(self) -> dict[str, float]:
        return self._of(self._table.allocatable - self._table.used)

    @property
    def pods(self) -> list[Pod]:
        """The pods that are there, also those that are on their way."""
        return [Pod(task) for task in self._table.tasks[self._row].values()]

    def _of(self, amounts: Floats) -> dict[str, float]:
        return plain(dict(zip(self._table.space.names, amounts[:, self._row].tolist())))


def plain(amounts: Amounts) -> dict[str, float]:
    """Cores, bytes, and whole units of everything else."""
    return {
        name: value if name in (MEMORY, PODS) else value / 1000 for name, value in amounts.items()
    }


class SimplePlugin:
    """Asked about one pod and one node at a time.  Define any of the methods below; each is
    optional.

    Pods of one job, role and template are asked about together, in the name of the first.
    """

    name: ClassVar[str]
    Arguments: ClassVar[type[Arguments]] = NoArguments
    arguments: Any
    """As the policy gives them, an `Arguments`."""
    weight: float = 1.0
    """What the score counts for."""
    reads: Reads = Reads()
    """What the answers come from beside pod and node, if the clock is among it."""

    if TYPE_CHECKING:

        def predicate(self, pod: Pod, node: Node) -> bool | str:
            """Whether the pod may go there; a text is a no with its reason."""

        def score(self, pod: Pod, node: Node) -> float:
            """0 to 100, more is better."""


SIMPLE_HOOKS = ("predicate", "score")
_Said = bool | str | float
"""What a user's predicate or score said of a node."""


class _Simple(Plugin):
    """The vector hooks of a SimplePlugin.  Answers are kept within a cycle; what moved on a node
    asks again for that node."""

    def __init__(
        self, simple: Any, arguments: Arguments, flags: Mapping[str, bool], name: str
    ) -> None:
        super().__init__(arguments, flags)
        self.simple = simple
        self.title = name
        self.verdicts: dict[Hashable, _Kept] = {}
        self.points: dict[Hashable, _Kept] = {}
        self.asked: Task | None = None

    def open(self, session: CycleView) -> None:
        self.verdicts.clear()
        self.points.clear()

    def filters(self) -> Iterator[Filter]:
        if hasattr(self.simple, "predicate"):
            yield Filter(
                self.title,
                f"node(s) refused by {self.title}",
                Code.UNSCHEDULABLE,
                Depends.CLUSTER,
                self._mask,
                self.title,
                self._detail,
            )

    def scores(self) -> Iterator[Score]:
        if hasattr(self.simple, "score"):
            weight = getattr(self.simple, "weight", 1.0)
            if not _number(weight) or not math.isfinite(weight):
                raise TypeError(f"its weight is {weight!r:.80}, where a number is expected")
            yield Score(self.title, float(weight), Depends.CLUSTER, self._points, batch=False)

    def _mask(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
        if task is None:
            return None
        self.asked = task
        answers = self._ask(self.verdicts, nodes, task, self._verdict)
        return np.array([answer is True for answer in answers], dtype=np.bool_)

    def _points(self, pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
        if task is None:
            return None
        return np.array(self._ask(self.points, nodes, task, self._point), dtype=np.float64)

    def _verdict(self, pod: Pod, node: Node) -> bool | str:
        """What the user's predicate says, which may also be nothing for a yes.  Raises TypeError
        for anything else."""
        answer = self.simple.predicate(pod, node)
        if answer is None:
            return True
        if isinstance(answer, bool | np.bool_):
            return bool(answer)
        if isinstance(answer, str):
            return answer
        raise TypeError(f"it answered {answer!r:.80}, where True, False or a text is expected")

    def _point(self, pod: Pod, node: Node) -> float:
        points = self.simple.score(pod, node)
        if not _number(points):
            raise TypeError(f"it answered {points!r:.80}, where a number is expected")
        return float(points)

    def _detail(self, pods: PodClass, row: int) -> str:
        """The user's own words for a node that was just refused."""
        kept = None if self.asked is None else self.verdicts.get(_key(self.asked))
        answer = kept.answers[row] if kept is not None else None
        return answer if isinstance(answer, str) and answer else f"node(s) refused by {self.title}"

    def _ask(
        self,
        kept: dict[Hashable, _Kept],
        nodes: NodeView,
        task: Task,
        question: Callable[[Pod, Node], _Said],
    ) -> list[_Said]:
        table, pod = nodes.table, Pod(task)
        if nodes.rows is not None and len(nodes.rows) <= 1:
            return [question(pod, Node(table, row)) for row in nodes.rows.tolist()]
        key = _key(task)
        known = kept.get(key)
        if known is None or len(known.answers) != len(table):
            known = kept[key] = _Kept(
                [
                    False if facts is None else question(pod, Node(table, row))
                    for row, facts in enumerate(table.facts)
                ]
            )
        else:
            for row in {at if at >= 0 else ~at for at in table.log[known.at :]}:
                known.answers[row] = question(pod, Node(table, row))
        known.at = len(table.log)
        return (
            known.answers
            if nodes.rows is None
            else [known.answers[row] for row in nodes.rows.tolist()]
        )


def _key(task: Task) -> Hashable:
    """What pods have in common that are asked about together."""
    return task.job.key if task.job is not None else task.key, task.role, task.pods


class _Kept:
    """Answers for all nodes, and the length of the table's log when they were true."""

    __slots__ = ("answers", "at")

    def __init__(self, answers: list[_Said]) -> None:
        self.answers = answers
        self.at = 0


# ---------------------------------------------------------------------------------------- the guard


def _number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not math.isnan(value)


def _vote(value: object) -> bool:
    return isinstance(value, int) and value in (-1, 0, 1)


def _yes_no(value: object) -> bool:
    return isinstance(value, bool | np.bool_)


@dataclasses.dataclass(frozen=True, slots=True)
class _Hook:
    """What a hook may answer, and what it counts as saying when it fails."""

    valid: Callable[[object], bool]
    wanted: str
    harmless: Callable[..., Any]


def _tasks(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, Task) for one in value)


def _scores(value: object) -> bool:
    return isinstance(value, dict) and all(map(_number, value.values()))


def _domains(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(some, list) and all(isinstance(one, str) for one in some) for some in value
    )


def _verdict(harmless: bool) -> _Hook:
    return _Hook(_yes_no, "True or False", lambda *given: harmless)


_ORDER = _Hook(_number, "a number", lambda *given: 0)
_SECONDS = _Hook(_number, "a number", lambda *given: 0)
_VOTE = _Hook(_vote, "PERMIT, ABSTAIN or REJECT", lambda *given: ABSTAIN)
_VICTIMS = _Hook(
    lambda value: isinstance(value, Victims) and _tasks(value.tasks),
    "a Victims of tasks",
    lambda *given: Victims(),
)
_TOLD = _Hook(lambda value: True, "", lambda *given: None)
HOOKS: Mapping[str, _Hook] = {
    "job_order": _ORDER, "queue_order": _ORDER, "task_order": _ORDER, "sub_job_order": _ORDER,
    "victim_queue_order": _ORDER, "job_valid": _Hook(lambda value: value is None or isinstance(value, Answer), "None or an Answer",
                                                      lambda *given: None),
    "job_ready": _verdict(True), "sub_job_ready": _verdict(True), "job_starving": _verdict(True), "overused": _verdict(False),
    "allocatable": _verdict(True), "preemptive": _verdict(True), "lesser": _verdict(False),
    "job_pipelined": _VOTE, "sub_job_pipelined": _VOTE, "job_enqueueable": _VOTE,
    "tasks_until_ready": _Hook(_number, "a number", lambda *given: 1),
    "allocatable_count": _Hook(_number, "a number", lambda queue, task, limit: limit),
    "preemptable": _VICTIMS, "reclaimable": _VICTIMS, "evictable": _VICTIMS,
    "victim_tasks": _Hook(_tasks, "a list of tasks", lambda *given: []),
    "prefilter": _Hook(lambda value: isinstance(value, str), "a text, empty where nothing is wrong", lambda *given: "a plugin failed"),
    "hyper_node_gradient": _Hook(_domains, "lists of domains", lambda group, domain, purpose: [[domain]]),
    "hyper_node_order": _Hook(_scores, "domain -> score", lambda *given: {}),
    "spares": _Hook(lambda value: isinstance(value, str), "a text, empty where the pod may go", lambda *given: ""),
    "victim_order": _ORDER, "eviction_notice": _SECONDS, "eviction_grace": _SECONDS,
    "eviction_decided": _TOLD,
    "job_enqueued": _TOLD, "allocated": _TOLD, "deallocated": _TOLD,
}  # fmt: skip
VECTOR_HOOKS = ("filters", "scores", "predicate", "score")
_KNOWN = (*HOOKS, *VECTOR_HOOKS, "open", "close")


class Guarded(Plugin):
    """Stands between the engine and a user's class; made by `guarded`."""

    user: ClassVar[type]
    source: ClassVar[str]

    def __init__(self, arguments: Arguments, flags: Mapping[str, bool]) -> None:
        super().__init__(arguments, flags)
        self.session: CycleView | None = None
        self.early: list[str] = []
        """Faults from before the first cycle."""
        self.said: set[str] = set()
        self.failed: dict[str, str] = {}
        """Filter -> why it could not answer, of this cycle."""
        self.inner = self._made(arguments, flags)
        if issubclass(self.user, Plugin) and isinstance(self.inner, Plugin):
            self.reads = self.inner.reads
        for hook in HOOKS:
            if callable(getattr(self.inner, hook, None)):
                setattr(self, hook, self._guard(hook, HOOKS[hook]))

    def _made(self, arguments: Arguments, flags: Mapping[str, bool]) -> Plugin | None:
        try:
            if issubclass(self.user, Plugin):
                return self.user(arguments, flags)
            simple: Any = self.user()
            simple.arguments = arguments
            return _Simple(simple, arguments, flags, self.name)
        except FAULTS as error:  # a user's code may raise anything; so below
            text = self._fault("__init__", error)
            # It was listed to have a say on nodes: without it no node is known to be right.
            return (
                _Unmade(text)
                if any(hasattr(self.user, hook) for hook in ("predicate", "filters"))
                else None
            )

    def open(self, session: CycleView) -> None:
        self.session = session
        self.said.clear()
        self.failed.clear()
        for text in self.early:
            self._tell(text)
        self._run("open", lambda inner: inner.open(session))

    def close(self, session: CycleView) -> None:
        self._run("close", lambda inner: inner.close(session))

    def _run(self, hook: str, call: Callable[[Plugin], None]) -> None:
        try:
            if isinstance(self.inner, Plugin):
                call(self.inner)
        except FAULTS as error:  # as above
            self._fault(hook, error)

    def _guard(self, hook: str, rules: _Hook) -> Callable[..., Any]:
        ask = getattr(self.inner, hook)

        def guard(*given: Any) -> Any:
            try:
                answer = ask(*given)
                if not rules.valid(answer):
                    raise TypeError(f"it answered {answer!r:.80}, where {rules.wanted} is expected")
                return answer
            except FAULTS as error:  # as above
                text = self._fault(hook, error)
                return text if hook == "prefilter" else rules.harmless(*given)

        return guard

    # -------------------------------------------------------------------------------------- vectors

    def filters(self) -> Iterable[Filter]:
        return [self._guard_filter(one) for one in self._listed("filters", Filter)]

    def scores(self) -> Iterable[Score]:
        return [
            dataclasses.replace(one, raw=self._guard_raw(one))
            for one in self._listed("scores", Score)
        ]

    def _listed(self, hook: str, kind: type) -> list[Any]:
        inner: Any = self.inner
        made: list[Any] = []
        try:
            if callable(getattr(inner, hook, None)):
                made.extend(getattr(inner, hook)())
            if not all(isinstance(one, kind) for one in made):
                raise TypeError(f"it answered {made!r:.80}, where {kind.__name__}s are expected")
        except FAULTS as error:  # as above
            text = self._fault(hook, error)
            made = [] if hook == "scores" else list(_Unmade(text).filters())
        if hook == "filters" and callable(getattr(inner, "predicate", None)):
            made.append(filter_of_predicate(inner, self.name, f"node(s) refused by {self.name}"))
        if hook == "scores" and callable(getattr(inner, "score", None)):
            made.append(score_of(inner, self.name))
        return made

    def _guard_filter(self, one: Filter) -> Filter:
        def mask(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools | None:
            try:
                answer = one.mask(pods, nodes, task)
                if answer is None:
                    return None
                if not len(nodes):  # only asked whether it has a say
                    return np.zeros(0, dtype=np.bool_)
                passed = np.asarray(answer)
                if passed.shape != (len(nodes),) or passed.dtype != np.bool_:
                    raise TypeError(
                        f"it answered {passed.dtype} of shape {passed.shape}, where bool of ({len(nodes)},) is expected"
                    )
                self.failed.pop(one.name, None)
                return passed
            except FAULTS as error:  # as above
                self.failed[one.name] = self._fault("predicate", error)
                return np.zeros(len(nodes), dtype=np.bool_)

        def detail(pods: PodClass, row: int) -> str:
            failed = self.failed.get(one.name)
            if failed is not None:
                return failed
            try:
                return one.reason if one.detail is None else one.detail(pods, row)
            except FAULTS as error:  # as above
                return self._fault("detail", error)

        return dataclasses.replace(one, mask=mask, detail=detail, plugin=self.name)

    def _guard_raw(self, one: Score) -> Callable[[PodClass, NodeView, Task | None], Floats | None]:
        def raw(pods: PodClass, nodes: NodeView, task: Task | None) -> Floats | None:
            try:
                answer = one.raw(pods, nodes, task)
                if answer is None:
                    return None
                if not len(nodes):  # as above
                    return np.zeros(0)
                points = np.asarray(answer, dtype=np.float64)
                if points.shape != (len(nodes),):
                    raise TypeError(
                        f"it answered {points.shape} scores, where ({len(nodes)},) is expected"
                    )
                if not np.isfinite(points).all():
                    raise ValueError("a score is not finite")
                return points
            except FAULTS as error:  # as above
                self._fault("score", error)
                return np.zeros(len(nodes))

        return raw

    # ---------------------------------------------------------------------------------- whose fault

    def _fault(self, hook: str, error: BaseException) -> str:
        """What went wrong, where in the user's file; said once a cycle.  What is returned names the
        file without its directories, for a reason among others, which is short.
        """
        line = 0
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename == self.source:
                line = frame.lineno or 0
        text = f"plugin {self.name} failed in {hook}: {type(error).__name__}: {without_addresses(str(error))}"
        where = f":{line}" if line else ""
        self._tell(f"{text} ({self.source}{where})")
        return f"{text} ({Path(self.source).name}{where})"

    def _tell(self, text: str) -> None:
        if self.session is None:
            self.early.append(text)
        elif text not in self.said:
            self.said.add(text)
            self.session.decisions.problems.append(text)


class _Unmade(Plugin):
    """In place of a plugin with a say on nodes that could not be made: no node is known to be
    right."""

    name = ""

    def __init__(self, fault: str) -> None:
        super().__init__(NoArguments(), {})
        self.fault = fault

    def filters(self) -> Iterable[Filter]:
        def refuse(pods: PodClass, nodes: NodeView, task: Task | None) -> Bools:
            return np.zeros(len(nodes), dtype=np.bool_)

        yield Filter("unmade", self.fault, Code.UNRESOLVABLE, Depends.CLUSTER, refuse)


def is_plugin(found: object) -> bool:
    """Whether a user means this class to be a plugin: it has a name and fills a hook."""
    return (
        inspect.isclass(found)
        and isinstance(getattr(found, "name", None), str)
        and found not in (Plugin, SimplePlugin)
        and (
            issubclass(found, Plugin | SimplePlugin)
            or any(callable(getattr(found, hook, None)) for hook in SIMPLE_HOOKS)
        )
    )


def guarded(user: type[Plugin | SimplePlugin], source: str) -> type[Plugin]:
    """The user's class as one that a policy can list.  Raises CustomPluginError for what is wrong
    with it.

    `source`: the file that it comes from, for messages.
    """
    known = _KNOWN if issubclass(user, Plugin) else SIMPLE_HOOKS
    for method in (
        name for name, value in vars(user).items() if callable(value) and not name.startswith("_")
    ):
        near = difflib.get_close_matches(method, known, n=1, cutoff=0.8)
        if near and method not in known and not inspect.isclass(getattr(user, method)):
            raise CustomPluginError(
                f'{user.__name__}.{method}: no hook has this name; did you mean "{near[0]}"?'
            )
    if not any(
        callable(getattr(user, hook, None)) for hook in known if hook not in ("open", "close")
    ):
        raise CustomPluginError(f"{user.__name__} fills no hook; known are " + ", ".join(known))
    arguments = getattr(user, "Arguments", NoArguments)
    if not (inspect.isclass(arguments) and issubclass(arguments, Arguments)):
        raise CustomPluginError(
            f"{user.__name__}.Arguments: a frozen subclass of hekla.engine.framework.plugin.Arguments"
        )
    body = {
        "name": user.name,
        "Arguments": arguments,
        "reads": getattr(user, "reads", Reads()),
        "user": user,
        "source": source,
        "__doc__": user.__doc__,
    }
    return type(user.__name__, (Guarded,), body)
