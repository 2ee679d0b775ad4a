"""The scheduler's own answer to where evicted pods would land: its policy, on a copy of what it knows.

Rules of fit say where a pod may go; where it goes is decided by queues, scores and who else waits.  A copy
is made once a cycle, of a snapshot (decision 0374), and what has been evicted so far stands on it as it would land.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import yaml

from hekla.api.text import yamltext
from hekla.api.text.times import stamp
from hekla.api.trees import Json, Tree
from hekla.descheduler.tables import Pod
from hekla.engine.cycle import cycle
from hekla.engine.framework.policy import Policy, PolicyError
from hekla.engine.model.reading import key_of
from hekla.engine.model.state import State
from hekla.engine.policies import default_policy, read_policy
from hekla.engine.tape import (
    HEADER,
    MOMENT,
    POLICY,
    STATE_CALLS,
    Frame,
    RecordingError,
    carry_out,
    settings_of,
    state_of,
)

NOT_KNOWN = "the scheduler does not know it"
NOWHERE = "the scheduler would find no place for it now"
BACK = "the scheduler would put it on the same node again"
NO_MORE = "the scheduler has been asked as often as a cycle may"
TOO_LONG = "the scheduler has been asked for as long as a cycle may"
MOST_QUESTIONS = 2000
"""Questions of a cycle, answered ones from memory not counted: each is a cycle of the engine."""
MOST_SECONDS = 30.0
"""For all questions of a cycle."""
PLACING = ("enqueue", "allocate", "backfill")
"""The actions that evict nobody."""
ROUNDS = 2
"""Cycles for a question: a PodGroup that the first one lets in finds its room in the second."""

Better = Callable[[Pod, str], str]
"""Why a node would be no better for a pod than where it is; "" if it is."""


class SchedulerCopy:
    """What a scheduler knows, and decides about pods that would have to be placed anew."""

    def __init__(
        self,
        state: State,
        policy: Policy,
        pods: dict[str, Tree],
        schedulers: frozenset[str],
        now: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`schedulers`: whose pods it places; `clock`: by which questions take their time."""
        self._state = state
        self._policy = replace(
            policy, actions=tuple(one for one in policy.actions if one in PLACING)
        )
        self._pods = pods
        self._schedulers = schedulers
        self._now = now
        self._clock = clock
        self._seconds = 0.0
        """What the questions have taken."""
        self._asked: dict[str, Tree] = {}
        """The pods of the last question, as they were."""
        self._others: list[str] = []
        """Pods that waited, and found the room of the last question's pods."""
        self._refusals: dict[Hashable, str] = {}
        """Why the scheduler would not move pods of one shape from one node, while nothing changes."""
        self.questions = 0
        for _ in range(ROUNDS):
            cycle(self._state, self._policy, now)  # what waits and has room is placed anyway

    @classmethod
    def of(cls, frames: Iterable[Frame], name: str) -> SchedulerCopy:
        """The copy that a snapshot makes.  Raises RecordingError where it is not whole, or cannot be used."""
        state, now, policy = None, None, default_policy()
        pods: dict[str, Tree] = {}
        schedulers: frozenset[str] = frozenset()
        for frame in frames:
            word, *given = frame
            if word == HEADER:
                state = state_of(frame, name)
                settings = settings_of(frame, name)
                schedulers = frozenset(
                    (
                        *(settings.get("scheduler_names") or ()),
                        *settings.get("bare_pod_schedulers", ()),
                    )
                )
            elif word == POLICY:
                policy = _policy(*given)
            elif word == MOMENT:
                now = float(given[0])
            elif state is not None and word in STATE_CALLS:
                carry_out(state, frame)
                if word == "upsert_pod":
                    pods[key_of(given[0])] = given[0]
            else:
                raise RecordingError(f"{name}: no snapshot has a frame {word!r} here")
        if state is None or now is None:
            raise RecordingError(f"{name}: it broke off before its end")
        return cls(state, policy, pods, schedulers, now)

    def places(self, pod: Pod) -> bool:
        """Whether the pod is this scheduler's to place."""
        tree = self._pods.get(pod.key)
        return tree is None or (tree.get("spec") or {}).get("schedulerName") in self._schedulers

    def ask(self, pods: Sequence[Pod], better: Better) -> tuple[str, dict[str, str]]:
        """Why these pods, all at once, would not land better than where they are; or "", and where each
        would, by key.  Then `keep` or `withdraw` says what became of it."""
        if any(
            self._pods.get(pod.key, {}).get("metadata", {}).get("uid") != pod.uid for pod in pods
        ):
            return NOT_KNOWN, {}
        shape = tuple(self._shape(pod) for pod in pods)
        known = self._refusals.get(shape)
        if known is not None:
            return known, {}
        if self.questions >= MOST_QUESTIONS:
            return NO_MORE, {}
        if self._seconds >= MOST_SECONDS:
            return TOO_LONG, {}
        self.questions += 1
        began = self._clock()
        nodes = self._land(pods)
        wrong = _unmoved(pods, nodes)
        if wrong:
            self._refusals[shape] = wrong
        else:
            wrong = better(pods[0], nodes[pods[0].key])
        if wrong:
            self.withdraw()
        self._seconds += self._clock() - began
        return (wrong, {}) if wrong else ("", nodes)

    def keep(self) -> None:
        """The pods of the last question were evicted: they stand where they would land."""
        for key in self._asked:
            del self._pods[key]
        self._asked, self._others = {}, []
        self._refusals.clear()

    def withdraw(self) -> None:
        """The pods of the last question stay where they are."""
        for key in self._others:
            self._state.bind_failed(key)
        for key, tree in self._asked.items():
            self._state.remove_pod(key)
            self._state.upsert_pod(tree)
        self._asked, self._others = {}, []

    def _land(self, pods: Sequence[Pod]) -> dict[str, str]:
        self._asked = {pod.key: self._pods[pod.key] for pod in pods}
        for key, tree in self._asked.items():
            self._state.remove_pod(key)
            self._state.upsert_pod(_made_anew(tree, self._now))
        nodes: dict[str, str] = {}
        for _ in range(ROUNDS):
            nodes |= {
                one.pod: one.node for one in cycle(self._state, self._policy, self._now).binds
            }
            if self._asked.keys() <= nodes.keys():
                break
        self._others = [key for key in nodes if key not in self._asked]
        return {key: node for key, node in nodes.items() if key in self._asked}

    def _shape(self, pod: Pod) -> Hashable:
        """What the scheduler's answer about a pod depends on."""
        task = self._state.tasks.get(pod.key)
        if task is None:
            return pod.key
        job = task.job
        turn = None if job is None else (job.queue, job.priority)
        return task.pods, task.priority, turn, pod.node


def _unmoved(pods: Sequence[Pod], nodes: dict[str, str]) -> str:
    """Why the first pod, or a gang with it, would not come to another node; "" if it would."""
    if len(nodes) < len(pods):
        return NOWHERE
    return BACK if nodes[pods[0].key] == pods[0].node else ""


def _policy(name: str, text: str, files: dict[str, str]) -> Policy:
    """The policy in force.  Code that comes with it is not run here."""
    if files:
        raise RecordingError(
            f"the scheduler has plugins of its own ({', '.join(sorted(files))}), whose code is not run here"
        )
    try:
        return read_policy(yamltext.load(text)) if text else default_policy()
    except (yaml.YAMLError, PolicyError) as error:
        raise RecordingError(f"the scheduler's policy {name} cannot be used: {error}") from error


def _made_anew(tree: Tree, now: float) -> Json:
    """The pod that its controller would make in this one's place."""
    metadata: dict[str, Any] = {**tree["metadata"], "creationTimestamp": stamp(now)}
    metadata["uid"] = f"{metadata.get('uid', '')}+"
    metadata.pop("deletionTimestamp", None)
    return {
        **tree,
        "metadata": metadata,
        "spec": {**tree["spec"], "nodeName": ""},
        "status": {"phase": "Pending"},
    }
