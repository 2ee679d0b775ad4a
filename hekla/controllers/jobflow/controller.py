"""The flow controller: creates the jobs of a flow in their order and reports their state
(reference: controllers 7)."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from hekla.api import batch, flow, names
from hekla.api.flow import JobFlowPhase
from hekla.api.meta import key as key_of
from hekla.controllers.caches import FLOW_INDEX, Caches, concerns
from hekla.controllers.events import Events
from hekla.controllers.jobflow.patch import filled, patched
from hekla.controllers.jobflow.probes import PERIOD, answered, asked
from hekla.controllers.jobflow.status import next_phase, status_of
from hekla.controllers.jobflow.steps import Steps, attempt_of, may_start, steps_of
from hekla.kube.client import Client
from hekla.kube.controller import Controller, Expectations
from hekla.kube.errors import AlreadyExists, NotFound
from hekla.kube.metrics import Tally
from hekla.kube.objects import controller_reference

SUCCEEDED = Tally(
    "volcano_jobflow_succeed_phase_count", "Flows that have succeeded", ["jobflow_namespace"]
)
FAILED = Tally(
    "volcano_jobflow_failed_phase_count", "Flows that have failed", ["jobflow_namespace"]
)
_ENDS = {JobFlowPhase.SUCCEED: SUCCEEDED, JobFlowPhase.FAILED: FAILED}
_STILL = frozenset({JobFlowPhase.FAILED, JobFlowPhase.TERMINATING})
"""Phases in which no further job is created.  Existing jobs go on, and the status follows them."""


class JobFlowController(Controller):
    """Reconciles a flow: deletes it, or creates the jobs that are ready, and writes the status."""

    name = "jobflow-controller"

    def __init__(
        self,
        client: Client,
        caches: Caches,
        events: Events,
        *,
        most_retries: int = 15,
    ) -> None:
        super().__init__(caches.flows, caches.templates, caches.jobs)
        self.most_retries = most_retries
        self._client = client
        self._caches = caches
        self._events = events
        self._expectations = Expectations(flow_of)
        caches.jobs.on_change_of(concerns, [FLOW_INDEX], self._expectations.observe)
        self.enqueue(caches.flows)
        self.enqueue(caches.jobs, flow_of, of=(concerns, [FLOW_INDEX]))
        self.enqueue(caches.templates, self._flows_with)

    def _flows_with(self, template: flow.JobTemplate) -> list[str]:
        """Flows that wait for a template to appear."""
        name, namespace = template.metadata.name, template.metadata.namespace
        return [
            key_of(owner)
            for owner in self._caches.flows
            if owner.metadata.namespace == namespace
            and any(step.name == name for step in owner.spec.flows)
        ]

    async def reconcile(self, key: str) -> float | None:
        owner = self._caches.flows.get(key)
        if owner is None or owner.metadata.deletion_timestamp:
            self._expectations.forget(key)
            return None
        if not self._expectations.satisfied(key):
            return self._expectations.remaining(key)
        jobs = {job.metadata.name: job for job in self._caches.jobs.by(FLOW_INDEX, key)}
        phase = owner.status.state.phase
        if (
            phase == JobFlowPhase.SUCCEED
            and owner.spec.job_retain_policy == flow.JobRetainPolicy.DELETE
        ):
            await self._delete(owner, list(jobs.values()))
            return None
        steps = steps_of(
            owner,
            {
                step.name: jobs[name]
                for step in owner.spec.flows
                if (name := job_name(owner, step.name)) in jobs
            },
        )
        ended = phase in _STILL or phase == JobFlowPhase.SUCCEED
        again = await self._deploy(key, owner, jobs, steps) if not ended else None
        status = status_of(owner, list(jobs.values()), time.time())
        if not ended:
            self._count_attempts(owner, status, jobs, steps)
        forgiven = {job_name(owner, name) for name in steps.again | steps.forgiven}
        following = next_phase(phase, status, steps.needed, forgiven)
        status.state = flow.FlowState(phase=following)
        if status != owner.status:
            await self._client.update_status(
                flow.JOB_FLOW, msgspec.structs.replace(owner, status=status)
            )
            if following != phase and following in _ENDS:
                _ENDS[JobFlowPhase(following)].labels(owner.metadata.namespace).inc()
        return again

    def given_up(self, key: str, error: Exception) -> None:
        super().given_up(key, error)
        owner = self._caches.flows.get(key)
        if owner is not None:
            self._events.event(owner, "Warning", "SyncJobFlow", str(error))

    async def _delete(self, owner: flow.JobFlow, jobs: list[batch.Job]) -> None:
        for job in jobs:
            if not job.metadata.deletion_timestamp:
                try:
                    await self._client.delete(
                        batch.JOB, job.metadata.name, owner.metadata.namespace, uid=job.metadata.uid
                    )
                except NotFound:
                    pass

    def _count_attempts(
        self,
        owner: flow.JobFlow,
        status: flow.JobFlowStatus,
        jobs: dict[str, batch.Job],
        steps: Steps,
    ) -> None:
        """Note that a job is created again.  The failed one is deleted only after the count was
        written, so that no attempt is forgotten."""
        for entry in status.job_status_list:
            job = jobs.get(entry.name)
            if job is not None and any(job_name(owner, name) == entry.name for name in steps.again):
                entry.attempt = attempt_of(job) + 1

    async def _deploy(
        self, key: str, owner: flow.JobFlow, jobs: dict[str, batch.Job], steps: Steps
    ) -> float | None:
        """Create the jobs that may start, in the order of the list.  Gives the seconds until probes
        are asked again."""
        again: float | None = None
        attempts = {entry.name: entry.attempt for entry in owner.status.job_status_list}
        for step in owner.spec.flows:
            name = job_name(owner, step.name)
            if name in jobs:
                if step.name in steps.again and attempts.get(name, 0) > attempt_of(jobs[name]):
                    await self._delete(owner, [jobs[name]])
                continue
            ready, probing = await self._ready(owner, step, jobs, steps)
            if probing and not ready:
                again = PERIOD
            if ready:
                await self._create(key, owner, step, name, attempts.get(name, 0))
        return again

    async def _ready(
        self, owner: flow.JobFlow, step: flow.Flow, jobs: dict[str, batch.Job], steps: Steps
    ) -> tuple[bool, bool]:
        """(whether a step may start, whether that depends on probes)."""
        waits = step.depends_on
        if waits is None:
            return True, False
        targets = [jobs.get(job_name(owner, target)) for target in waits.targets]
        if waits.probe is None or not asked(waits.probe):
            return may_start(step, steps.states), False
        for job in targets:
            if job is None or not await answered(self._client, job, waits.probe):
                return False, True
        return True, True

    async def _create(
        self, key: str, owner: flow.JobFlow, step: flow.Flow, name: str, attempt: int
    ) -> None:
        namespace = owner.metadata.namespace
        template = self._caches.templates.get(f"{namespace}/{step.name}")
        if template is None:
            raise LookupError(f"job template {namespace}/{step.name} does not exist")
        body = job_body(owner, step, template, attempt)
        try:
            with self._expectations.creating(key, f"{namespace}/{name}"):
                await self._client.create(batch.JOB, body, namespace)
        except AlreadyExists:
            return  # the watch may have shown it already, and would not again
        self._events.event(owner, "Normal", "Created", f"create a job named {name}!")


def job_name(owner: flow.JobFlow, step: str) -> str:
    return f"{owner.metadata.name}-{step}"


def job_body(
    owner: flow.JobFlow, step: flow.Flow, template: flow.JobTemplate, attempt: int = 0
) -> dict[str, Any]:
    """The job of one step of a flow; `attempt` is noted on it from the second on."""
    namespace = owner.metadata.namespace
    marks = {
        names.CREATED_BY_JOB_TEMPLATE: f"{namespace}.{template.metadata.name}",
        names.CREATED_BY_JOB_FLOW: f"{namespace}.{owner.metadata.name}",
    }
    spec: dict[str, Any] = msgspec.to_builtins(template.spec)
    if step.patch is not None and step.patch.job_spec is not None:
        spec = patched(spec, msgspec.to_builtins(step.patch.job_spec))
    if owner.spec.parameters:
        spec = filled(spec, owner.spec.parameters)
    return {
        "metadata": {
            "name": job_name(owner, step.name),
            "namespace": namespace,
            "labels": marks,
            "annotations": {
                **marks,
                **({names.JOB_FLOW_ATTEMPT: str(attempt)} if attempt > 1 else {}),
            },
            "ownerReferences": [
                controller_reference(flow.JOB_FLOW, owner.metadata.name, owner.metadata.uid)
            ],
        },
        "spec": spec,
    }


def flow_of(job: batch.Job) -> str | None:
    """The key of the flow that made a job."""
    mark = job.metadata.labels.get(names.CREATED_BY_JOB_FLOW, "")
    namespace, dot, name = mark.partition(".")
    return f"{namespace}/{name}" if dot and namespace == job.metadata.namespace else None
