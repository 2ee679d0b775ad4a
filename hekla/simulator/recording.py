"""A recording of a scheduler (`--record`) as a workload: its objects as they came, with how long its
pods really ran, for any policy.

What follows from the recorded policy's decisions is left out: binds that came back, pods that ran
and ended, statuses, pods made anew for evicted ones.  The simulation makes all of that itself.  A
pod that its controller made once its PodGroup had been admitted comes as long after the
admission as it did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from hekla.api import names
from hekla.api.trees import Json, Tree
from hekla.engine.model.reading import GROUP_NAME, key_of
from hekla.engine.model.resources import amounts
from hekla.engine.model.time.durations import instant
from hekla.engine.model.time.walltimes import pod_walltime, stated_walltime
from hekla.engine.tape import OUTCOMES, Frame, settings_of, state_of
from hekla.podrules.plain_pods import stands_alone
from hekla.simulator.snapshot import ENDED, usage_of
from hekla.simulator.stand_ins import stand_ins
from hekla.simulator.workload import (
    Call,
    Departure,
    GivenPod,
    InputError,
    SimulatedJob,
    Step,
    Workload,
    microseconds,
)

PENDING = ("", "Pending")
"""Phases of a pod that does not run yet."""


class RecordedPolicy(NamedTuple):
    """A policy file as it was recorded, and the texts of its plugin files."""

    name: str
    text: str
    sources: dict[str, str]


@dataclass(slots=True)
class _Pod:
    """What a recording tells of a pod."""

    tree: Tree
    came: int
    lag: int | None = None
    """Microseconds between the admission of its job and its coming."""
    began: int | None = None
    ended: int | None = None
    left: bool = False
    """Whether it went without having had a node."""
    bound: int | None = None
    """When it was bound, which it was if it has a beginning."""
    evicted: int | None = None
    """When it was chosen as a victim, which it was if it left."""
    beginning: list[Step] = field(default_factory=list)
    """What became of it since its bind, until it ran."""
    leaving: list[Step] = field(default_factory=list)
    """What became of it since its eviction."""
    nominated: tuple[str, int] = ("", 0)
    """The node that it was nominated to last, and when."""
    nominations: dict[str, int | None] = field(default_factory=dict)
    """Such a node -> how long it took until that was seen, if it was before its bind."""
    anew: _Pod | None = None
    """What took its place after its eviction."""

    def step(self, now: int, tree: Tree | None) -> None:
        """A step on its way to run, or out if it was evicted."""
        metadata = {} if tree is None else tree["metadata"]
        status = None if tree is None else tree.get("status") or {}
        if self.evicted is not None:
            if not self.gone:
                self.leaving.append(Step(now - self.evicted, metadata, status))
        elif self.bound is not None and status is not None and not self.runs:
            self.beginning.append(Step(now - self.bound, metadata, status))

    def seen(self, now: int) -> int:
        """Microseconds that it was seen to run."""
        return 0 if self.began is None else (now if self.ended is None else self.ended) - self.began

    @property
    def gone(self) -> bool:
        """Whether it was evicted and has left."""
        return bool(self.leaving) and self.leaving[-1].status is None

    @property
    def runs(self) -> bool:
        """Whether it has been seen to run since its bind."""
        return bool(self.beginning) and _phase(self.beginning[-1].status) not in PENDING


@dataclass(slots=True)
class _Group:
    tree: Tree
    came: int
    pending: bool
    """Whether it was still to be admitted when it came."""
    admitted: int | None = None
    gone: bool = False
    """Whether it was deleted before the recording ended."""
    pods: list[_Pod] = field(default_factory=list)


def read(
    frames: Iterable[Frame], name: str, default_duration: int | None = None
) -> tuple[Workload, RecordedPolicy | None]:
    """The workload and the first policy of a recording.  `default_duration`: microseconds that pods
    run whose end was not recorded and that state no walltime.  Raises InputError, and RecordingError for
    a recording of another version."""
    reader = _Reader()
    for frame in frames:
        if frame[0] == "header":
            state_of(frame, name)
        if not reader.take(frame):
            break
    if reader.beginning is None:
        raise InputError(f"{name}: no whole cycle is recorded")
    return reader.workload(default_duration), reader.policy


class _Reader:
    def __init__(self) -> None:
        self.settings: Mapping[str, Any] | None = None
        self.policy: RecordedPolicy | None = None
        self.beginning: int | None = None
        self.now = 0
        self.waiting: list[Frame] = []
        """Frames that the next cycle is the first to see."""
        self.moments: list[int] = []
        self.calls: list[Call] = []
        self.groups: dict[str, _Group] = {}
        self.alone: list[_Pod] = []
        self.pods: dict[str, _Pod] = {}
        """The newest pod of each key that is ours."""
        self.names: frozenset[str] = frozenset()
        """Of schedulers whose pods are ours; those of `bare` need no PodGroup."""
        self.bare: frozenset[str] = frozenset()
        self.notes: list[str] = []

    def take(self, frame: Frame) -> bool:
        """Whether to read on."""
        word, *given = frame
        if word == "header":
            if self.settings is not None and self.beginning is not None:
                self.notes.append("the scheduler began anew: what it recorded then is left out")
                return False
            self.settings = settings_of(frame, "the recording")
            self.bare = frozenset(self.settings.get("bare_pod_schedulers") or ())
            self.names = self.bare.union(self.settings.get("scheduler_names") or ())
        elif word == "policy":
            recorded = RecordedPolicy(*given)
            if self.policy is None:
                self.policy = recorded
            elif self.policy != recorded:
                self.notes.append("the policy changed while it was recorded: the first is taken")
        elif word == "cycle":
            self._cycle(given[0], msgspec.msgpack.decode(given[1]))
        elif word != "extender" and word not in OUTCOMES:
            self.waiting.append(frame)
        elif word == "bind_failed" and given[0] in self.pods:
            self.pods[given[0]].began = self.pods[given[0]].bound = None
        elif word == "evict_failed" and given[0] in self.pods:
            self.pods[given[0]].evicted = None
        return True

    def _cycle(self, clock: float, decisions: Json) -> None:
        absolute = microseconds(clock)
        if self.beginning is None:
            self.beginning = absolute
        self.now = absolute - self.beginning
        self.moments.append(self.now)
        for frame in self.waiting:
            self._object(*frame)
        self.waiting.clear()
        for bind in decisions["binds"]:
            if (pod := self.pods.get(bind["pod"])) is not None:
                pod.began = pod.bound = self.now
        for one in decisions["conditions"]:
            if one["nominated_node"] and (pod := self.pods.get(one["pod"])) is not None:
                pod.nominated = one["nominated_node"], self.now
                pod.nominations.setdefault(one["nominated_node"], None)
        for eviction in decisions["evictions"]:
            if (pod := self.pods.get(eviction["pod"])) is not None:
                pod.evicted = self.now
        for status in decisions["pod_groups"]:
            group = self.groups.get(status["key"])
            if group is None or group.admitted is not None or not group.pending:
                continue
            if status["phase"] != "Pending":
                group.admitted = self.now

    # -------------------------------------------------------------------------------------- objects

    def _object(self, word: str, *given: Any) -> None:
        verb, _, kind = word.partition("_")
        if kind == "pod":
            key = key_of(given[0]) if verb == "upsert" else given[0]
            self._pod(word, key, given[0] if verb == "upsert" else None)
        elif word == "upsert_pod_group":
            self._group(given[0])
        elif word == "remove_pod_group":
            if (group := self.groups.get(given[0])) is not None:
                group.gone = True  # In a simulation it goes with the last of its pods.
        else:
            self.calls.append(Call(self.now, word, tuple(given)))

    def _group(self, tree: Tree) -> None:
        known = self.groups.get(key_of(tree))
        if known is None:
            phase = (tree.get("status") or {}).get("phase") or "Pending"
            self.groups[key_of(tree)] = _Group(tree, self.now, phase == "Pending")
        elif _asked(known.tree) != _asked(tree):
            known.tree = {**known.tree, "metadata": tree["metadata"], "spec": tree.get("spec")}
            self.calls.append(Call(self.now, "upsert_pod_group", (tree,)))

    def _pod(self, word: str, key: str, tree: Tree | None) -> None:
        known = self.pods.get(key)
        if tree is None:
            if known is None:
                self.calls.append(Call(self.now, word, (key,)))
            else:
                self._gone(known, key)
            return
        meta, spec = tree["metadata"], tree.get("spec") or {}
        if spec.get("schedulerName") not in self.names:
            self.calls.append(Call(self.now, word, (tree,)))
            return
        if known is None or known.tree["metadata"].get("uid") != meta.get("uid"):
            if known is not None:
                self._gone(known, key)
            self._came(key, tree, known)
            known = self.pods.get(key)
            if known is None:
                return
        known.step(self.now, tree)
        status = tree.get("status") or {}
        node, since = known.nominated
        if (
            node
            and known.nominations[node] is None
            and status.get("nominatedNodeName") == node
            and not spec.get("nodeName")
        ):
            known.nominations[node] = self.now - since
        if spec.get("nodeName") and known.began is None:
            stated = instant(status.get("startTime", "") or "")
            assert self.beginning is not None
            known.began = microseconds(stated) - self.beginning if stated else self.now
        if status.get("phase") in ENDED and known.ended is None:
            known.ended = self.now

    def _came(self, key: str, tree: Tree, before: _Pod | None) -> None:
        meta = tree["metadata"]
        named = (meta.get("annotations") or {}).get(GROUP_NAME)
        group = self.groups.get(f"{meta.get('namespace', '')}/{named}")
        self.pods[key] = made = _Pod(tree, self.now)
        if before is not None and before.evicted is not None:
            before.anew = made
            return
        if group is None:
            bare = tree["spec"]["schedulerName"] in self.bare
            if bare or (not named and stands_alone(meta)):
                self.alone.append(made)
            else:  # Its PodGroup is not there: a pod that nobody schedules.
                self.calls.append(Call(self.now, "upsert_pod", (tree,)))
                del self.pods[key]
            return
        if group.admitted is not None:
            made.lag = self.now - group.admitted
        group.pods.append(made)

    def _gone(self, pod: _Pod, key: str) -> None:
        pod.step(self.now, None)
        if pod.ended is not None:
            return
        pod.ended = self.now
        if pod.began is None and pod.evicted is None:
            pod.left = True
            self.calls.append(Call(self.now, "remove_pod", (key,)))

    # --------------------------------------------------------------------------------- the workload

    def workload(self, default: int | None) -> Workload:
        assert self.beginning is not None
        self._stand_in()
        jobs = [self._gang(group, default) for group in self.groups.values() if group.pods]
        jobs += [self._alone(pod, default) for pod in self.alone]
        return Workload(
            jobs,
            notes=self.notes,
            beginning=self.beginning,
            settings=self.settings or {},
            calls=self.calls,
            moments=self.moments,
        )

    def _stand_in(self) -> None:
        """Give pods to groups that were not let in as long as the recording went, so that another
        policy may start them."""
        waiting = [one for one in self.groups.values() if not one.pods and one.pending]
        gone = [one for one in waiting if one.gone]
        scheduler = next(iter((self.settings or {}).get("scheduler_names") or ()), "volcano")
        for group in waiting:
            if not group.gone:
                group.pods = [
                    _Pod(tree, group.came, lag=0) for tree in stand_ins(group.tree, scheduler)
                ]
        if len(waiting) > len(gone):
            self.notes.append(
                f"jobs that had no pods yet: {len(waiting) - len(gone)}; they have such as their "
                "PodGroups ask for, and run for as long as they say"
            )
        if gone:
            self.notes.append(f"jobs deleted before they had pods: {len(gone)}; left out")

    def _gang(self, group: _Group, default: int | None) -> SimulatedJob:
        meta, spec = group.tree["metadata"], group.tree.get("spec") or {}
        limit = stated_walltime(meta.get("annotations") or {})
        given = [self._given(one, limit, default) for one in group.pods]
        return SimulatedJob(
            name=meta["name"],
            namespace=meta.get("namespace", ""),
            submit=group.came,
            duration=None,
            requests=usage_of(group.pods[0].tree),
            pods=len(given),
            min_available=int(spec.get("minMember") or 0),
            queue=spec.get("queue") or names.DEFAULT_QUEUE,
            priority_class=spec.get("priorityClassName", ""),
            processors=sum(_cpu(one.tree) for one in group.pods),
            group=group.tree,
            given=given,
        )

    def _alone(self, pod: _Pod, default: int | None) -> SimulatedJob:
        meta = pod.tree["metadata"]
        queue = (meta.get("annotations") or {}).get(names.GROUP_QUEUE_NAME) or names.DEFAULT_QUEUE
        bare = pod.tree["spec"]["schedulerName"] in self.bare
        return SimulatedJob(
            name=meta["name"] if bare else names.bare_pod_group_name(meta.get("uid", "")),
            namespace=meta.get("namespace", ""),
            submit=pod.came,
            duration=None,
            requests=usage_of(pod.tree),
            queue=queue,
            processors=_cpu(pod.tree),
            given=[self._given(pod, None, default)],
        )

    def _given(self, pod: _Pod, limit: float | None, default: int | None) -> GivenPod:
        moment = pod.came if pod.lag is None else pod.lag
        length = self._ran(pod, limit, default)
        found = GivenPod(pod.tree, length, moment, pod.lag is not None)
        found.nominations = pod.nominations
        if pod.runs:
            found.beginning = pod.beginning
        if pod.gone and pod.evicted is not None:
            found.departure = Departure(pod.leaving)
            if pod.anew is not None:
                successor = self._given(pod.anew, limit, default)
                successor.moment, successor.after_admission = pod.anew.came - pod.evicted, False
                found.departure.successor = successor
        return found

    def _ran(self, pod: _Pod, limit: float | None, default: int | None) -> int | None:
        """Microseconds: what it ran, or what took its place once it was evicted; else what it says; and
        at least what was seen of it."""
        if pod.anew is not None:
            length = self._ran(pod.anew, limit, default)
            return None if length is None else max(length, pod.seen(self.now))
        if pod.began is not None and pod.ended is not None and pod.evicted is None:
            return pod.seen(self.now)
        annotations = pod.tree["metadata"].get("annotations") or {}
        own = pod_walltime(annotations, pod.tree.get("spec") or {})
        stated = min((one for one in (own, limit) if one is not None), default=None)
        found = default if stated is None else microseconds(stated)
        return None if found is None else max(found, pod.seen(self.now))


def _phase(status: Tree | None) -> str:
    return str((status or {}).get("phase", ""))


def _asked(group: Tree) -> Any:
    """What a PodGroup's owner says; the rest is what schedulers write."""
    meta = group["metadata"]
    annotations = {
        name: value
        for name, value in (meta.get("annotations") or {}).items()
        if name not in (names.EXPLANATION, names.START_ESTIMATE)
    }
    return annotations, meta.get("labels"), group.get("spec")


def _cpu(pod: Tree) -> float:
    return amounts(usage_of(pod)).get("cpu", 0.0) / 1000
