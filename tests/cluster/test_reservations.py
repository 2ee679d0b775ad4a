"""Reservations against the daemons of a cluster, with processes: a backfilled job ends before the reserved gang
starts, and a window of maintenance drains a node."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.api.text.times import instant, stamp
from tests.cluster.api import Api, Tree, eventually
from tests.cluster.vcctl import vcctl

JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
RESERVATIONS = "/apis/scheduling.hekla.io/v1alpha1/reservations"
AHEAD, OPEN = 14, 10
"""Seconds until a window opens, and that it is open."""

pytestmark = pytest.mark.slow


@pytest.fixture
def api(kubeconfig: Path, own: bool) -> Api:
    if not own:
        pytest.skip("it takes a scheduler that minds reservations")
    return Api(kubeconfig)


@pytest.fixture
def name(api: Api) -> Iterator[str]:
    """A name for what a test makes; its jobs and its reservation are deleted."""
    made = f"r{uuid.uuid4().hex[:6]}"
    yield made
    for job in api.get(JOBS).tree["items"]:
        if job["metadata"]["name"].startswith(made):
            api.delete(f"{JOBS}/{job['metadata']['name']}")
    api.delete(f"{RESERVATIONS}/{made}")


def real_node(api: Api) -> str:
    """A node whose pods are processes."""
    nodes: list[Tree] = api.get("/api/v1/nodes").tree["items"]
    return next(
        str(node["metadata"]["name"])
        for node in nodes
        if (node["metadata"].get("labels") or {}).get("type") != "kwok"
    )


def job(name: str, node: str, sleep: int, pods: int = 1, **annotations: str) -> Tree:
    container = {
        "name": "c",
        "image": "busybox",
        "command": ["sleep", str(sleep)],
        "resources": {"requests": {"cpu": "100m"}},
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "annotations": {f"hekla.io/{key}": value for key, value in annotations.items()},
        },
        "spec": {
            "minAvailable": pods,
            "tasks": [
                {
                    "name": "t",
                    "replicas": pods,
                    "template": {
                        "spec": {
                            "restartPolicy": "Never",
                            "nodeSelector": {"kubernetes.io/hostname": node},
                            "containers": [container],
                        }
                    },
                }
            ],
        },
    }


def reserve(api: Api, name: str, node: str, **spec: object) -> float:
    """When the window opens."""
    opens = float(int(time.time()) + AHEAD)
    made = {
        "apiVersion": "scheduling.hekla.io/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {
            "nodes": {"names": [node]},
            "window": {"start": stamp(opens), "duration": f"{OPEN}s"},
            **spec,
        },
    }
    assert api.post(RESERVATIONS, made).status == 201
    eventually(
        lambda: bool((api.get(f"{RESERVATIONS}/{name}").tree.get("status") or {}).get("state"))
    )
    return opens


def spans(api: Api, name: str) -> list[tuple[float, float]]:
    """From when to when the containers of a job's pods ran, once all have ended."""
    found: list[tuple[float, float]] = []
    for pod in api.get(PODS).tree["items"]:
        if pod["metadata"]["name"].startswith(f"{name}-t-"):
            for status in (pod.get("status") or {}).get("containerStatuses") or ():
                ended = (status.get("state") or {}).get("terminated")
                if ended:
                    found.append((instant(ended["startedAt"]), instant(ended["finishedAt"])))
    return found


def test_a_backfilled_job_ends_before_the_reserved_gang_starts(api: Api, name: str) -> None:
    node = real_node(api)
    opens = reserve(api, name, node, owners={"jobs": [f"default/{name}-gang"]})
    api.post(JOBS, job(f"{name}-gang", node, 1, 3, reservation=name, walltime="5s"))
    api.post(JOBS, job(f"{name}-short", node, 2, walltime="6s"))
    eventually(lambda: len(spans(api, f"{name}-gang")) == 3, 60)
    ((_, ended),) = spans(api, f"{name}-short")
    assert ended <= opens
    for began, _ in spans(api, f"{name}-gang"):
        assert opens <= began <= opens + 3


def test_a_window_of_maintenance_drains_a_node(api: Api, name: str, kubeconfig: Path) -> None:
    node = real_node(api)
    opens = reserve(api, name, node)
    api.post(JOBS, job(f"{name}-short", node, 2, walltime="6s"))
    api.post(JOBS, job(f"{name}-endless", node, 1))
    eventually(lambda: len(spans(api, f"{name}-short")) == 1, 30)
    told = vcctl(kubeconfig, "explain", f"{name}-endless")[1]
    assert f"reserved for {name} from {stamp(opens)}" in told
    assert "this job says no walltime" in told
    eventually(lambda: len(spans(api, f"{name}-endless")) == 1, 60)
    ((_, ended),) = spans(api, f"{name}-short")
    ((began, _),) = spans(api, f"{name}-endless")
    assert ended <= opens and began >= opens + OPEN
    shown = vcctl(kubeconfig, "reservation", "view", name)[1]
    assert "State:     Ended (WindowsPassed)" in shown and "Past:      1 windows" in shown
