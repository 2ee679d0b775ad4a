"""Many small jobs at one time, in a whole cluster: how often their objects are written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.api import Tree
from tests.controllers.whole_cluster.cluster import (
    BATCH,
    GROUPS,
    WholeCluster,
    a_job,
    a_task,
)

pytestmark = pytest.mark.timeout(180)

JOBS = 120
SINGLE = 40
"""Groups at most that are let in one by one: the first of a flood, and where it was interrupted."""


def test_groups_that_are_let_in_together_are_written_once(cluster: WholeCluster) -> None:
    """The phase Inqueue of most is announced to the controllers and never written."""
    names = [f"flood-{number}" for number in range(JOBS)]
    before = cluster.api.get(GROUPS).tree["metadata"]["resourceVersion"]
    with ThreadPoolExecutor(16) as clients:
        list(
            clients.map(
                lambda name: cluster.api.create(BATCH, a_job(name, a_task(cpu="1m"))), names
            )
        )
    running: set[str] = set()

    def all_run(event: Tree) -> bool:
        if event["object"].get("status", {}).get("phase") == "Running":
            running.add(event["object"]["metadata"]["name"])
        return len(running) == JOBS

    with cluster.api.watch(GROUPS, resourceVersion=before) as events:
        seen = events.until(all_run)
    let_in = {
        event["object"]["metadata"]["name"]
        for event in seen
        if event["object"].get("status", {}).get("phase") == "Inqueue"
    }
    assert len(let_in) <= SINGLE
    with ThreadPoolExecutor(16) as clients:
        list(clients.map(cluster.remove, names))
