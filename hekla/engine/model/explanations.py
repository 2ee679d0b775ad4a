"""Why a job waits, as data; `hekla.engine.explain` finds it out."""

from __future__ import annotations

import msgspec

from hekla.engine.model.queues.queues import Queue
from hekla.engine.model.reasons import Shortage
from hekla.engine.model.tasks import Job


class NodeReason(msgspec.Struct, frozen=True, omit_defaults=True):
    """One reason that rules out some nodes."""

    reason: str
    """As in the pod's condition."""
    nodes: int
    text: str
    """As a person would say it."""
    resource: str = ""
    """Of which they have too little, with what one pod asks for, the most that is left on one of
    them, and what is missing there."""
    asked: str = ""
    left: str = ""
    missing: str = ""


class Explanation(msgspec.Struct, frozen=True):
    """Why one job waits."""

    job: str
    queue: str
    constraint: str
    """enqueue, validity, quota, nodes, topology, order."""
    needs: int
    """Tasks that its minimum asks for."""
    fit: int
    """Tasks that hold or found a place."""
    nodes: int
    reasons: list[NodeReason]
    remedy: str
    text: str
    """All of it, as it stands on the PodGroup, in the event and in what vcctl prints."""
    spared: str = ""
    """Why nobody was evicted for it."""
    shortages: list[Shortage] = []
    """For `enqueue`, `quota` and `topology`: what is in the way, with its numbers."""
    missing: int = 0
    """For `nodes` and `quota`: pods like this that still want a place."""
    asks: dict[str, str] = {}
    """And what one of them asks for, by resource."""

    def numbers(self) -> str:
        """JSON of what the text says in words, for programs; empty where there is nothing to count."""
        if not (self.reasons or self.shortages or self.missing):
            return ""
        parts = {
            "constraint": self.constraint,
            "queue": self.queue,
            "needs": self.needs,
            "fit": self.fit,
            "missing": self.missing,
            "asks": self.asks,
            "nodes": self.nodes,
            "reasons": self.reasons,
            "shortages": self.shortages,
            "remedy": self.remedy,
            "noVictimBecause": self.spared,
        }
        return msgspec.json.encode(parts).decode()


def not_open(queue: Queue) -> str:
    """Why a queue places nothing."""
    return f"queue {queue.name} is not open" + (f" but {queue.state}" if queue.state else "")


def purpose_of(preemptor: Job, victim: Job | None) -> str:
    """For whom a pod of `victim` has to leave, and what lets it be taken: the queue where that is
    another, else the priority."""
    if preemptor is victim:
        return "room for other pods of its job"
    room = f"room for job {preemptor.namespace}/{preemptor.title} of queue {preemptor.queue}"
    if victim is not None and victim.queue != preemptor.queue:
        return f"{room}, which takes back its share from queue {victim.queue}"
    over = f" over {victim.priority}" if victim is not None else ""
    return f"{room}, priority {preemptor.priority}{over}"
