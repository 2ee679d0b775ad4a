"""Checklist 145 to 150: scale, and programs of others."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from statistics import median
from typing import Any

import pytest

from tests.cluster import objects
from tests.cluster.api import PATIENCE, Api, eventually
from tests.cluster.conftest import Kubectl, Namespace

KUBECTL_PAGE = 500
"""How kubectl asks for a list.  A kube-apiserver may take more than a second for 5,000 pods in one
piece; ours does not."""
TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}


@contextmanager
def fake_nodes(api: Api, count: int) -> Iterator[list[str]]:
    """Tainted nodes, made by a client as KWOK's users make them: with their status in the manifest."""
    run = f"many-{uuid.uuid4().hex[:6]}"
    names = [f"{run}-{number}" for number in range(count)]
    size = {"cpu": "8", "memory": "8Gi", "pods": "110"}

    def make(name: str) -> None:
        labels = {"kubernetes.io/hostname": name, "type": "kwok", "run": run}
        metadata = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
        api.create(
            "/api/v1/nodes",
            {
                "metadata": metadata,
                "spec": {"taints": [TAINT]},
                "status": {"capacity": size, "allocatable": size},
            },
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make, names))
    try:
        yield names
    finally:
        api.delete("/api/v1/nodes", labelSelector=f"run={run}")


@pytest.fixture
def fakes(api: Api, fake_node: str) -> Iterator[list[str]]:
    with fake_nodes(api, 100) as made:
        yield made


@pytest.fixture
def few(api: Api, fake_node: str) -> Iterator[list[str]]:
    with fake_nodes(api, 5) as made:
        yield made


def test_item_146_fake_nodes_get_ready_and_hide(
    api: Api, ns: Namespace, few: list[str], kubectl: Kubectl
) -> None:
    kubectl("wait", "--for=condition=Ready", "node", "-l", "type=kwok", "--timeout=30s")
    pinned = {"kubernetes.io/hostname": few[0]}
    api.create(
        ns.path("pods"),
        objects.pod("untolerant", schedulerName="default-scheduler", nodeSelector=pinned),
    )
    tolerant = {"tolerations": objects.FAKE["tolerations"]}
    api.create(
        ns.path("pods"),
        objects.pod("tolerant", schedulerName="default-scheduler", nodeSelector=pinned, **tolerant),
    )
    api.wait(ns.path("pods", "tolerant"), lambda pod: pod["spec"].get("nodeName") == few[0])
    api.wait(
        ns.path("pods", "untolerant"),
        lambda pod: objects.condition(pod, "PodScheduled").get("reason") == "Unschedulable",
    )


def scale(
    api: Api, ns: Namespace, fakes: list[str], count: int, seconds: float, page: int = 0
) -> None:
    """So many pods, bound to the nodes as they are made, all run in time; lists stay quick
    meanwhile, and no watcher is too late.

    `page` is the objects of one answer to a list, 0 all of them.
    """
    lists: list[float] = []

    def make(number: int) -> None:
        api.create(
            ns.path("pods"),
            objects.pod(
                f"p{number}",
                nodeName=fakes[number % len(fakes)],
                labels={"scale": "1"},
                terminationGracePeriodSeconds=0,
            ),
        )

    def all_run() -> bool:
        found, query = 0, {"limit": page} if page else {}
        while True:
            began = time.monotonic()
            answer = api.get(
                ns.path("pods"),
                fieldSelector="status.phase=Running",
                labelSelector="scale",
                **query,
            )
            lists.append(time.monotonic() - began)
            found += len(answer.tree["items"])
            following = answer.meta.get("continue")
            if not following:
                return found == count
            query["continue"] = following

    version = api.get(ns.path("pods")).version
    running: set[str] = set()

    def follow() -> None:
        """A server may let a watcher go that is slow to read; that one goes on where it was, and
        must not find that expired."""
        seen = version
        while len(running) < count:
            with (
                api.watch(
                    ns.path("pods"), resourceVersion=seen, labelSelector="scale", timeout=seconds
                ) as watch,
                suppress(EOFError),
            ):
                while len(running) < count:
                    event: Any = watch.next()
                    assert event["type"] != "ERROR", event
                    seen = event["object"]["metadata"]["resourceVersion"]
                    if event["object"]["status"]["phase"] == "Running":
                        running.add(event["object"]["metadata"]["name"])

    with ThreadPoolExecutor(9) as pool:
        followed = pool.submit(follow)
        list(pool.map(make, range(count)))
        eventually(all_run, seconds, 0.5)
        followed.result(seconds)
    assert median(lists) < 1, "a single one may have met with anything"
    api.delete(ns.path("pods"), labelSelector="scale", gracePeriodSeconds=0)


def test_item_145_five_hundred_pods(api: Api, ns: Namespace, fakes: list[str]) -> None:
    scale(api, ns, fakes, 500, PATIENCE)


@pytest.mark.slow(seconds=90)
@pytest.mark.timeout(
    600
)  # the minute counts from when all are bound; making them takes a kube-apiserver longer than that
def test_item_145_five_thousand_pods(api: Api, ns: Namespace, fakes: list[str], own: bool) -> None:
    scale(api, ns, fakes, 5000, 60, page=0 if own else KUBECTL_PAGE)


def test_item_089_a_chart_with_definitions() -> None:
    pytest.skip(
        "helm is built for the slow lane: tests/clients/test_helm.py installs a chart with a definition and its objects"
    )


def test_item_147_a_chart() -> None:
    pytest.skip(
        "Volcano's chart is not beside this repository; tests/clients/test_helm.py lives a chart of our own"
    )


def test_item_148_the_suites_of_others() -> None:
    pytest.skip("the end-to-end suites are Go programs that are not beside this repository")


def test_item_149_service_discovery() -> None:
    pytest.skip(
        "Prometheus is built for the slow lane: tests/clients/test_prometheus.py has a test for each role"
    )


def test_item_150_python_clients() -> None:
    pytest.importorskip("kubernetes", reason="the Python clients are not installed")
