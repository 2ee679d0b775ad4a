"""Kubernetes' own controller of HorizontalPodAutoscalers and Hekla's look at the same clusters, and say
the same: the number, the metrics, the conditions word by word."""

from __future__ import annotations

import asyncio
import re
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from hekla.api.kubernetes import core
from hekla.api.kubernetes.apps import DEPLOYMENT
from hekla.api.text.times import stamp
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.controller import run
from hekla.kube.events import Recorder
from hekla.local.controller_manager.autoscaling.controller import (
    AUTOSCALER,
    AutoscalingController,
    Settings,
)
from tests.apiserver_process import ApiServerProcess
from tests.controller_manager.adapter import adapter
from tests.kubernetes import programs
from tests.metrics_server.process import MetricsServerProcess
from tests.ports import free_port

pytestmark = [*programs.slow(60), pytest.mark.asyncio(loop_scope="module")]
SECONDS = 1
STEADY, PATIENCE = 4.0, 60.0
"""Seconds without a change after which a status is taken as final, and until one has to be."""
AT_ONCE = 22
OLD = 3600.0
CPU = "kwok.x-k8s.io/usage-cpu"


class Pod(NamedTuple):
    """A pod of the target: what it uses ("" for one that is not measured), and how it is."""

    cpu: str = "100m"
    phase: str = "Running"
    ready: str = "True"
    age: float = OLD
    ready_for: float = OLD
    requests: str = "100m"


class Case(NamedTuple):
    pods: list[Pod]
    replicas: int | None = None
    """Of the target; None for as many as there are pods."""
    spec: dict[str, Any] = {}
    metrics: list[Json] | None = None
    target: dict[str, Any] = {}


def resource(name: str = "cpu", container: str = "", **target: Any) -> Json:
    kind = "Utilization" if "averageUtilization" in target else "AverageValue"
    source: Json = {"name": name, "target": {"type": kind, **target}}
    if not container:
        return {"type": "Resource", "resource": source}
    return {"type": "ContainerResource", "containerResource": {**source, "container": container}}


HITS = {
    "type": "Pods",
    "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "1"}},
}
HALF = resource(averageUtilization=50)


def average(value: str) -> Json:
    return {"type": "AverageValue", "averageValue": value}


def whole(value: str) -> Json:
    return {"type": "Value", "value": value}


def of_pods(metric: str, value: str) -> Json:
    return {"type": "Pods", "pods": {"metric": {"name": metric}, "target": average(value)}}


def of_object(metric: str, target: Json) -> Json:
    described = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "it"}
    source = {"metric": {"name": metric}, "describedObject": described, "target": target}
    return {"type": "Object", "object": source}


def external(metric: str, target: Json, **labels: str) -> Json:
    selector = {"selector": {"matchLabels": labels}} if labels else {}
    return {
        "type": "External",
        "external": {"metric": {"name": metric, **selector}, "target": target},
    }


SERVED = {"pods/*/rate": {f"it-{number}": f"{10 * (number + 1)}" for number in range(4)},
          "deployments.apps/it/depth": {"it": "50"}, "deployments.apps/it/split": {"a": "1", "b": "2"}}  # fmt: skip
OUTSIDE = {"queue": ["20", "5500m"], "queue?color=red": ["7"], "empty": []}
"""What the adapter says of pods and objects, and of what is outside."""
QUICK = {
    "scaleDown": {"stabilizationWindowSeconds": 0},
    "scaleUp": {"stabilizationWindowSeconds": 0},
}


def pace(way: str, kind: str, value: int, **more: Any) -> Json:
    policy = {"type": kind, "value": value, "periodSeconds": 1800}
    return {
        "behavior": {**QUICK, way: {"stabilizationWindowSeconds": 0, "policies": [policy], **more}}
    }


CASES = {
    "up": Case([Pod("150m"), Pod("130m")]),
    "far": Case([Pod("1500m")]),
    "down": Case([Pod("10m")] * 4, spec={"behavior": QUICK}),
    "held": Case([Pod("10m")] * 4),
    "within": Case([Pod("54m"), Pod("55m")]),
    "silent-up": Case([Pod("100m"), Pod("100m"), Pod("")], spec={"behavior": QUICK}),
    "silent-down": Case([Pod("10m")] * 3 + [Pod("")], spec={"behavior": QUICK}),
    "silent-much": Case([Pod("10m"), Pod(""), Pod("")], spec={"behavior": QUICK}),
    "silent-all": Case([Pod(""), Pod("")]),
    "pending": Case([Pod("100m"), Pod(phase="Pending", ready="")], spec={"behavior": QUICK}),
    "pending-down": Case([Pod("10m"), Pod("10m"), Pod(phase="Pending", ready="")], spec={"behavior": QUICK}),
    "failed": Case([Pod("100m"), Pod("100m", phase="Failed")]),
    "young": Case([Pod("100m"), Pod("900m", age=20, ready_for=1)], spec={"behavior": QUICK}),
    "never-ready": Case([Pod("100m"), Pod("900m", ready="False", ready_for=OLD - 5)], spec={"behavior": QUICK}),
    "turned": Case([Pod("100m"), Pod("900m", ready="False", ready_for=60)], spec={"behavior": QUICK}),
    "no-request": Case([Pod("100m", requests="")]),
    "no-pods": Case([], replicas=2),
    "memory": Case([Pod(), Pod()], metrics=[resource("memory", averageValue="300k")]),
    "amount": Case([Pod("100m"), Pod("120m")], metrics=[resource(averageValue="60m")]),
    "container": Case([Pod("100m")], metrics=[resource(container="c", averageUtilization=40)]),
    "no-container": Case([Pod("100m")], metrics=[resource(container="x", averageUtilization=40)]),
    "two": Case([Pod("100m")], metrics=[HALF, resource("memory", averageValue="500k")]),
    "one-of-two-up": Case([Pod("100m")], metrics=[HALF, resource("memory", averageUtilization=50)]),
    "one-of-two-down": Case([Pod("1m")] * 2, metrics=[HALF, resource("memory", averageUtilization=50)]),
    "zero": Case([], replicas=0),
    "above": Case([Pod()], replicas=20),
    "below": Case([Pod()], replicas=1, spec={"minReplicas": 3}),
    "least": Case([Pod("1m")] * 4, spec={"minReplicas": 2, "behavior": QUICK}),
    "most": Case([Pod("900m")] * 4),
    "slowly-up": Case([Pod("900m")] * 2, spec=pace("scaleUp", "Pods", 1)),
    "slowly-up-percent": Case([Pod("900m")] * 3, spec=pace("scaleUp", "Percent", 10)),
    "slowly-down": Case([Pod("1m")] * 5, spec=pace("scaleDown", "Pods", 2)),
    "slowly-down-percent": Case([Pod("1m")] * 5, spec=pace("scaleDown", "Percent", 50)),
    "never-down": Case([Pod("1m")] * 3, spec=pace("scaleDown", "Pods", 1, selectPolicy="Disabled")),
    "nobody": Case([], target={"name": "missing"}),
    "toaster": Case([], target={"kind": "Toaster"}),
    "first-of-two": Case([Pod("100m")], metrics=[resource("memory", averageUtilization=50), HALF]),
    "hits": Case([Pod("100m")], metrics=[HITS]),
    "hits-and-cpu": Case([Pod("100m")], metrics=[HITS, HALF]),
    "hits-and-low-cpu": Case([Pod("1m")] * 2, metrics=[HITS, HALF], spec={"behavior": QUICK}),
    "served": Case([Pod(), Pod()], metrics=[of_pods("rate", "10")]),
    "served-down": Case([Pod()] * 4, metrics=[of_pods("rate", "50")], spec={"behavior": QUICK}),
    "served-young": Case([Pod(), Pod(age=20, ready_for=1), Pod(phase="Pending", ready="")], metrics=[of_pods("rate", "5")]),
    "served-silent": Case([Pod()] * 5, metrics=[of_pods("rate", "40")], spec={"behavior": QUICK}),
    "object": Case([Pod(), Pod()], metrics=[of_object("depth", whole("20"))]),
    "object-down": Case([Pod()] * 4, metrics=[of_object("depth", whole("100"))], spec={"behavior": QUICK}),
    "object-within": Case([Pod()] * 3, metrics=[of_object("depth", whole("52"))]),
    "object-unready": Case([Pod(), Pod(ready="False")], metrics=[of_object("depth", whole("20"))]),
    "object-no-pods": Case([], replicas=2, metrics=[of_object("depth", whole("20"))]),
    "object-each": Case([Pod(), Pod()], metrics=[of_object("depth", average("10"))]),
    "object-each-within": Case([Pod()] * 3, metrics=[of_object("depth", average("17"))]),
    "object-twice": Case([Pod()], metrics=[of_object("split", whole("20"))]),
    "object-silent": Case([Pod()], metrics=[of_object("nothing", whole("20"))]),
    "outside": Case([Pod(), Pod()], metrics=[external("queue", whole("10"))]),
    "outside-each": Case([Pod(), Pod()], metrics=[external("queue", average("10"))]),
    "outside-chosen": Case([Pod(), Pod()], metrics=[external("queue", average("1"), color="red")]),
    "outside-down": Case([Pod()] * 4, metrics=[external("queue", whole("100"))], spec={"behavior": QUICK}),
    "outside-empty": Case([Pod()], metrics=[external("empty", whole("10"))]),
    "outside-silent": Case([Pod()], metrics=[external("nothing", average("10"), color="red", size="big")]),
    "outside-and-cpu": Case([Pod("100m")], metrics=[HALF, external("queue", whole("10"))]),
    "tolerant": Case([Pod("54m")], spec={"behavior": {**QUICK, "scaleUp": {**QUICK["scaleUp"], "tolerance": "20m"}}}),
    "big": Case([Pod("1100m", requests="2")], metrics=[resource("memory", averageValue="100Ki")]),
    "least-of-nobody": Case([Pod("")] * 3, spec={"minReplicas": 2}),
    "mixed": Case(
        [Pod("100m"), Pod("30m", ready="False", ready_for=100), Pod(""), Pod("10m", phase="Failed"), Pod(phase="Pending", ready="")],
        spec={"behavior": QUICK},
    ),
}  # fmt: skip


async def furnish(client: Client, namespace: str, case: Case, now: float) -> None:
    """The target, its pods and its autoscaler in a namespace of their own."""
    await client.create(core.NAMESPACE.untyped, {"metadata": {"name": namespace}})
    labels = {"app": "it"}
    replicas = len(case.pods) if case.replicas is None else case.replicas
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    await client.create(DEPLOYMENT.untyped, {"metadata": {"name": "it"}, "spec": spec}, namespace)
    await client.patch(
        DEPLOYMENT.untyped,
        "it",
        {"status": {"replicas": replicas}},
        namespace,
        subresource="status",
    )
    for number, pod in enumerate(case.pods):
        asked = {"requests": {"cpu": pod.requests}} if pod.requests else {}
        marks = {CPU: pod.cpu, "kwok.x-k8s.io/usage-memory": "400Ki"}
        body = {
            "metadata": {"name": f"it-{number}", "labels": labels, "annotations": marks},
            "spec": {
                "nodeName": "fake" if pod.cpu else "silent",
                "containers": [{"name": "c", "image": "x", "resources": asked}],
            },
        }
        await client.create(core.POD.untyped, body, namespace)
        status: Json = {"phase": pod.phase, "startTime": stamp(now - pod.age)}
        if pod.ready:
            ready = {
                "type": "Ready",
                "status": pod.ready,
                "lastTransitionTime": stamp(now - pod.ready_for),
            }
            status["conditions"] = [ready]
        await client.patch(
            core.POD.untyped, f"it-{number}", {"status": status}, namespace, subresource="status"
        )
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "it", **case.target}
    whole = {
        "scaleTargetRef": reference,
        "maxReplicas": 10,
        "metrics": case.metrics or [HALF],
        **case.spec,
    }
    await client.create(AUTOSCALER, {"metadata": {"name": "it"}, "spec": whole}, namespace)


async def final(client: Client, namespace: str) -> Json:
    """What is said in the end, without times."""
    deadline, since, last = time.monotonic() + PATIENCE, time.monotonic(), None
    while True:
        status = (await client.get(AUTOSCALER, "it", namespace)).get("status") or {}
        scale = await client.get(DEPLOYMENT.untyped, "it", namespace)
        seen = told(status, scale["spec"]["replicas"])
        if seen != last or not status.get("conditions"):
            since, last = time.monotonic(), seen
        if time.monotonic() - since > STEADY:
            return seen
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.2)


def told(status: Json, replicas: int) -> Json:
    return {
        "replicas": replicas,
        "desired": status.get("desiredReplicas", 0),
        "current": status.get("currentReplicas", 0),
        "metrics": status.get("currentMetrics") or [],
        "conditions": sorted(
            (one["type"], one["status"], one["reason"], words(one))
            for one in status.get("conditions") or ()
        ),
        "scaled": "lastScaleTime" in status,
    }


def words(condition: Json) -> str:
    """The text of a condition, without what is chance (which of several pods is named) and, where Hekla
    says more, without all of it."""
    if condition["reason"] == "FailedGetObjectMetric":
        return ""  # theirs has the object's name and the cause in each other's places
    return re.sub(r"(Pod it)-\d|(metric )(?:ours|theirs)-", r"\1\2", condition["message"])


class Sides(NamedTuple):
    theirs: dict[str, Json]
    ours: dict[str, Json]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServerProcess]:
    with ApiServerProcess.started(tmp_path_factory.mktemp("autoscaling")) as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sides(
    server: ApiServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Sides]:
    """All cases once under Kubernetes' controller and once under Hekla's."""
    manager = programs.wanted("kube-controller-manager")["kube-controller-manager"]
    directory = tmp_path_factory.mktemp("sides")
    metrics = MetricsServerProcess(directory, server)
    async with (
        Client(config.load(str(server.internal_kubeconfig))) as client,
        adapter(directory, server.pki / "front-proxy-ca.crt", client) as measures,
    ):
        measures.custom, measures.external = SERVED, OUTSIDE
        node = {"metadata": {"name": "fake", "annotations": {"kwok.x-k8s.io/node": "fake"}}}
        await client.create(core.NODE.untyped, node)
        metrics.start()
        try:
            command = [
                str(manager),
                f"--kubeconfig={server.kubeconfig}",
                f"--authentication-kubeconfig={server.kubeconfig}",
                f"--authorization-kubeconfig={server.kubeconfig}",
                "--leader-elect=false",
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
                "--concurrent-horizontal-pod-autoscaler-syncs=10",
                "--controllers=horizontal-pod-autoscaler-controller",
                f"--secure-port={free_port()}",
                f"--cert-dir={directory}",
                f"--horizontal-pod-autoscaler-sync-period={SECONDS}s",
            ]
            with (directory / "manager.log").open("w") as log:
                process = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                theirs = await all_of(client, "theirs")
            finally:
                process.kill()
                process.wait()
            async with watching(client):
                ours = await all_of(client, "ours")
            yield Sides(theirs, ours)
        finally:
            metrics.kill()


@asynccontextmanager
async def watching(client: Client) -> AsyncIterator[None]:
    """Hekla's controller, alone as Kubernetes' is: nobody makes pods of what is scaled."""
    recorder = Recorder(client, "test")
    kinds = {("apps/v1", "Deployment"): "deployments"}
    controller = AutoscalingController(
        client,
        Cache(client, AUTOSCALER),
        lambda version, kind: kinds.get((version, kind), ""),
        recorder,
        Settings(period=SECONDS),
    )
    task = asyncio.create_task(run([controller]))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(*(cache.stop() for cache in controller.caches))
        await recorder.close()


async def all_of(client: Client, side: str) -> dict[str, Json]:
    """What each case comes to; some at a time, that a look at all of them takes less than a look is
    waited for."""
    seen = {}
    for first in range(0, len(CASES), AT_ONCE):
        names = list(CASES)[first : first + AT_ONCE]
        now = time.time()
        await asyncio.gather(
            *(furnish(client, f"{side}-{name}", CASES[name], now) for name in names)
        )
        found = await asyncio.gather(*(final(client, f"{side}-{name}") for name in names))
        seen |= dict(zip(names, found, strict=True))
        await asyncio.gather(*(client.delete(AUTOSCALER, "it", f"{side}-{name}") for name in names))
    return seen


@pytest.mark.parametrize("name", CASES)
async def test_both_say_the_same(sides: Sides, name: str) -> None:
    ours, theirs = sides.ours[name], sides.theirs[name]
    assert {key: ours[key] for key in ours if ours[key] != theirs[key]} == {
        key: theirs[key] for key in ours if ours[key] != theirs[key]
    }
