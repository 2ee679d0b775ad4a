"""The caches that the controllers share: one watch a kind, however many controllers look at it."""

from __future__ import annotations

from collections.abc import Iterable

from hekla.api import batch, bus, flow, names, scheduling
from hekla.api.kubernetes import priority
from hekla.controllers.records import POD, Pod
from hekla.kube.cache import Cache
from hekla.kube.client import Client

JOB_INDEX = "job"
FLOW_INDEX = "flow"
TEMPLATE_INDEX = "template"
CRON_INDEX = "cron"
EXPIRY = "expiry"
"""The concern of jobs that have a time to live."""


class Caches:
    """Made at start; started and synced by whoever runs the controllers."""

    def __init__(self, client: Client) -> None:
        self.jobs = Cache(
            client,
            batch.JOB,
            indexes={FLOW_INDEX: _flow_of, TEMPLATE_INDEX: _template_of, CRON_INDEX: _cron_of},
        )
        self.pods: Cache[Pod] = Cache(client, POD, indexes={JOB_INDEX: _job_of})
        self.groups = Cache(client, scheduling.POD_GROUP)
        self.queues = Cache(client, scheduling.QUEUE, indexes={"parent": _parent_of})
        self.commands = Cache(client, bus.COMMAND)
        self.priorities = Cache(client, priority.PRIORITY_CLASS)
        self.flows = Cache(client, flow.JOB_FLOW)
        self.templates = Cache(client, flow.JOB_TEMPLATE)
        self.cron_jobs = Cache(client, batch.CRON_JOB)

    def priority_of(self, name: str) -> int:
        """The value of a priority class, 0 for one that does not exist."""
        found = self.priorities.get(name)
        return found.value if found is not None else 0


def concerns(job: batch.Job) -> tuple[str, ...]:
    """Which controllers besides the job controller a job may concern: those of the flow, template
    or cron job that made it, and the one of its expiry.

    The cache of jobs sorts its listeners by this, because most jobs are made by hand.
    """
    labels = job.metadata.labels
    found: list[str] = []
    if names.CREATED_BY_JOB_FLOW in labels:
        found.append(FLOW_INDEX)
    if names.CREATED_BY_JOB_TEMPLATE in labels:
        found.append(TEMPLATE_INDEX)
    if job.metadata.owner_references:
        found.append(CRON_INDEX)
    if job.spec.ttl_seconds_after_finished is not None:
        found.append(EXPIRY)
    return tuple(found)


def _job_of(pod: Pod) -> Iterable[str]:
    key = pod.job_key
    return (key,) if key else ()


def _parent_of(queue: scheduling.Queue) -> Iterable[str]:
    return (queue.spec.parent,) if queue.spec.parent else ()


def _flow_of(job: batch.Job) -> Iterable[str]:
    return _marked(job, names.CREATED_BY_JOB_FLOW)


def _template_of(job: batch.Job) -> Iterable[str]:
    return _marked(job, names.CREATED_BY_JOB_TEMPLATE)


def _marked(job: batch.Job, label: str) -> Iterable[str]:
    """The key that a label `<namespace>.<name>` stands for."""
    mark = job.metadata.labels.get(label)
    if not mark:
        return ()
    namespace, dot, name = mark.partition(".")
    return (f"{namespace}/{name}",) if dot else ()


def _cron_of(job: batch.Job) -> Iterable[str]:
    owner = job.metadata.controller()
    return (owner.uid,) if owner is not None and owner.kind == batch.CRON_JOB.kind else ()
