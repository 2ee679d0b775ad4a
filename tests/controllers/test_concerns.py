"""Which controllers hear of a job at all."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api import batch, names
from hekla.api.meta import OwnerReference
from hekla.controllers.caches import (
    CRON_INDEX,
    EXPIRY,
    FLOW_INDEX,
    TEMPLATE_INDEX,
    Caches,
    concerns,
)
from hekla.controllers.garbage import GarbageCollector
from hekla.controllers.jobtemplate import JobTemplateController
from tests.controllers.job.world import job_of, task


def job(
    *,
    labels: dict[str, str] | None = None,
    owners: list[OwnerReference] | None = None,
    ttl: int | None = None,
) -> batch.Job:
    made = job_of(task("a"), ttl_seconds_after_finished=ttl)
    made.metadata.labels = labels or {}
    made.metadata.owner_references = owners or []
    made.status.state.phase = "Completed"
    return made


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (job(), ()),
        (job(labels={"app": "train"}), ()),
        (job(labels={names.CREATED_BY_JOB_FLOW: "default.f"}), (FLOW_INDEX,)),
        (job(labels={names.CREATED_BY_JOB_TEMPLATE: "default.t"}, ttl=0), (TEMPLATE_INDEX, EXPIRY)),
        (
            job(
                owners=[
                    OwnerReference(
                        api_version="v1", kind="CronJob", name="c", uid="u", controller=True
                    )
                ]
            ),
            (CRON_INDEX,),
        ),
    ],
)
def test_a_job_says_whom_it_concerns(made: batch.Job, said: tuple[str, ...]) -> None:
    assert concerns(made) == said


def test_a_job_that_was_made_by_hand_and_stays_is_told_to_none_of_them() -> None:
    client: Any = None
    caches = Caches(client)
    garbage, templates = GarbageCollector(client, caches), JobTemplateController(client, caches)
    assert not caches.jobs._listeners.of_all, "what every job is told to"

    caches.jobs._put("default/plain", job())
    caches.jobs._put("default/short", job(ttl=1))
    caches.jobs._put("default/shaped", job(labels={names.CREATED_BY_JOB_TEMPLATE: "default.t"}))

    assert list(garbage.queue._ready) == ["default/train"]
    assert list(templates.queue._ready) == ["default/t"]
