"""conformance: what the cluster itself needs is nobody's victim.  Reference: plugins-fairness 3."""

from __future__ import annotations

from hekla.engine.framework.plugin import Plugin, Reads, Source, Victims
from hekla.engine.model.tasks import Job, Task

_CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})


class Conformance(Plugin):
    """Protects kube-system and the two system priority classes."""

    name = "conformance"
    reads = Reads(victims=Source.PREEMPTOR)

    def preemptable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        return _spared(candidates)

    def reclaimable(self, preemptor: Task, candidates: list[Task]) -> Victims:
        return _spared(candidates)

    def evictable(self, kind: str, job: Job, candidates: list[Task]) -> Victims:
        return _spared(candidates)


def _spared(candidates: list[Task]) -> Victims:
    return Victims(
        [
            task
            for task in candidates
            if task.priority_class not in _CRITICAL and task.namespace != "kube-system"
        ]
    )
