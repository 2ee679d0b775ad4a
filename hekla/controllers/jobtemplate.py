"""Keeps on each job template the list of jobs that were made from it (reference: controllers 6)."""

from __future__ import annotations

import msgspec

from hekla.api import batch, flow, names
from hekla.controllers.caches import TEMPLATE_INDEX, Caches, concerns
from hekla.kube.client import Client
from hekla.kube.controller import Controller


class JobTemplateController(Controller):
    """Reconciles a template's list of jobs."""

    name = "jobtemplate-controller"

    def __init__(self, client: Client, caches: Caches, *, most_retries: int = 15) -> None:
        super().__init__(caches.templates, caches.jobs)
        self.most_retries = most_retries
        self._client = client
        self._caches = caches
        self.enqueue(caches.templates)
        self.enqueue(caches.jobs, template_of, of=(concerns, [TEMPLATE_INDEX]))

    async def reconcile(self, key: str) -> float | None:
        template = self._caches.templates.get(key)
        if template is None or template.metadata.deletion_timestamp:
            return None
        made = sorted(job.metadata.name for job in self._caches.jobs.by(TEMPLATE_INDEX, key))
        if made != template.status.job_depends_on_list:
            status = flow.JobTemplateStatus(job_depends_on_list=made)
            await self._client.update_status(
                flow.JOB_TEMPLATE, msgspec.structs.replace(template, status=status)
            )
        return None


def template_of(job: batch.Job) -> str | None:
    """The key of the template that a job was made from; a label with more than one dot names none."""
    parts = job.metadata.labels.get(names.CREATED_BY_JOB_TEMPLATE, "").split(".")
    return f"{parts[0]}/{parts[1]}" if len(parts) == 2 else None
