"""An autoscaler beside real daemons: API server, kubelet, metrics server and controllers."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import yaml

from hekla.api.kubernetes import core
from hekla.api.kubernetes.apps import DEPLOYMENT
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.local.controller_manager.autoscaling.controller import AUTOSCALER
from hekla.local.kubelet.nodes.own_nodes import FAKE_NAME
from tests.apiserver_process import ApiServerProcess
from tests.controller_manager.adapter import adapter
from tests.controller_manager.live import PATIENCE, controllers
from tests.kubelet.live_cluster import NODE_NAME, cluster
from tests.metrics_server.process import MetricsServerProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAGE = Path(__file__).parents[2] / "docs/autoscaling.md"
FAKE = f"{FAKE_NAME}-0"
USAGE = "kwok.x-k8s.io/usage-cpu"
PERIOD = "horizontal-pod-autoscaler-sync-period=0.3s"
PATIENT = "horizontal-pod-autoscaler-cpu-initialization-period=0s"
HITS = {
    "type": "Pods",
    "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
BURN = """
import pathlib, time
while True:
    if not pathlib.Path("/switch/on").exists():
        time.sleep(0.2)
"""


@dataclass
class Live:
    server: ApiServerProcess
    client: Client
    metrics: MetricsServerProcess
    namespace: str = "default"

    async def deploy(self, name: str, node: str, **container: Any) -> None:
        """A deployment of one pod, of a node that is stated."""
        spec = {
            "nodeName": node,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "volumes": container.pop("volumes", []),
            "containers": [
                {
                    "name": "c",
                    "image": "busybox",
                    "resources": {"requests": {"cpu": "200m"}},
                    **container,
                }
            ],
        }
        labels = {"app": name}
        template = {"metadata": {"labels": labels, "annotations": {USAGE: "100m"}}, "spec": spec}
        body = {
            "metadata": {"name": name},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
        }
        await self.client.create(DEPLOYMENT.untyped, body, self.namespace)

    async def autoscale(
        self, name: str, target: str = "", kind: str = "Deployment", **spec: Any
    ) -> None:
        reference = {"apiVersion": "apps/v1", "kind": kind, "name": target or name}
        quick = {"stabilizationWindowSeconds": 0}
        whole = {
            "scaleTargetRef": reference,
            "maxReplicas": 4,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 50},
                    },
                }
            ],
            "behavior": {"scaleDown": quick, "scaleUp": quick},
            **spec,
        }
        await self.client.create(
            AUTOSCALER, {"metadata": {"name": name}, "spec": whole}, self.namespace
        )

    async def until(
        self, name: str, seen: Callable[[Json], Any], seconds: float = PATIENCE
    ) -> Json:
        """The autoscaler's status once it is so."""
        deadline = time.monotonic() + seconds
        while True:
            status = (await self.client.get(AUTOSCALER, name, self.namespace)).get("status") or {}
            if seen(status):
                return status
            assert time.monotonic() < deadline, status
            await asyncio.sleep(0.1)

    async def replicas(self, name: str) -> int:
        path = DEPLOYMENT.path(self.namespace, name, "scale")
        answer = await self.client.request("GET", path)
        return int(msgspec.json.decode(answer.body)["spec"]["replicas"])

    async def use(self, name: str, cpu: str) -> None:
        """All pods of a deployment on a fake node use so much from now on."""
        for pod in (await self.client.list(core.POD, self.namespace, labels=f"app={name}")).items:
            patch = {"metadata": {"annotations": {USAGE: cpu}}}
            await self.client.patch(core.POD, pod.metadata.name, patch, self.namespace)

    async def reasons(self, name: str) -> set[str]:
        fields = f"involvedObject.name={name},involvedObject.kind=HorizontalPodAutoscaler"
        found = await self.client.list(core.EVENT, self.namespace, fields=fields)
        return {f"{event.reason}: {event.message}" for event in found.items}

    async def told(self, name: str, words: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not any(words in text for text in await self.reasons(name)):
            assert time.monotonic() < deadline, await self.reasons(name)
            await asyncio.sleep(0.1)


def condition(status: Json, kind: str) -> tuple[str, str]:
    found = next((one for one in status.get("conditions") or () if one["type"] == kind), {})
    return found.get("status", ""), found.get("reason", "")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    directory = tmp_path_factory.mktemp("autoscaling")
    async with cluster(directory, "--fake-nodes=1") as made:
        metrics = MetricsServerProcess(directory, made.server)
        metrics.start()
        try:
            with controllers(made.server, f"--{PERIOD}", f"--{PATIENT}"):
                yield Live(made.server, made.client, metrics)
        finally:
            metrics.kill()


async def test_more_and_fewer_as_the_pods_use(live: Live) -> None:
    await live.deploy("web", FAKE)
    await live.autoscale("web")
    status = await live.until("web", lambda it: condition(it, "ScalingActive")[0] == "True")
    (metric,) = status["currentMetrics"]
    assert metric["resource"] == {
        "name": "cpu",
        "current": {"averageValue": "100m", "averageUtilization": 50},
    }
    assert condition(status, "ScalingActive") == ("True", "ValidMetricFound")
    assert await live.replicas("web") == 1
    await live.use("web", "290m")
    await live.told("web", "SuccessfulRescale: New size: 3; reason: cpu resource utilization")
    await live.until("web", lambda it: it["currentReplicas"] == 4)  # of which three use 100m
    await live.use("web", "10m")
    status = await live.until(
        "web", lambda it: it["desiredReplicas"] == 1 and it["currentReplicas"] == 1
    )
    assert condition(status, "ScalingLimited")[1] in ("TooFewReplicas", "DesiredWithinRange")
    assert status["lastScaleTime"]
    await live.told("web", "SuccessfulRescale: New size: 1; reason: All metrics below target")
    v1 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/web"
    shown = msgspec.json.decode((await live.client.request("GET", v1)).body)
    assert shown["spec"]["targetCPUUtilizationPercentage"] == 50
    assert shown["status"]["currentCPUUtilizationPercentage"] == 5


async def test_a_container_and_an_amount(live: Live) -> None:
    await live.deploy("side", FAKE)
    target = {"type": "AverageValue", "averageValue": "50m"}
    source = {"name": "cpu", "container": "c", "target": target}
    await live.autoscale(
        "side", metrics=[{"type": "ContainerResource", "containerResource": source}]
    )
    status = await live.until("side", lambda it: it.get("desiredReplicas") == 2)
    (metric,) = status["currentMetrics"]
    assert metric["containerResource"] == {
        "name": "cpu",
        "container": "c",
        "current": {"averageValue": "100m"},
    }


async def test_what_stops_it_is_said(live: Live) -> None:
    await live.autoscale("nobody", "missing")
    status = await live.until("nobody", lambda it: condition(it, "AbleToScale")[0])
    assert condition(status, "AbleToScale") == ("False", "FailedGetScale")
    await live.told("nobody", 'deployments.apps "missing" not found')
    await live.autoscale("oddly", "x", "Toaster")
    await live.told("oddly", 'no matches for kind "Toaster" in group "apps"')

    await live.deploy("bare", FAKE, resources={})
    await live.autoscale("bare")
    status = await live.until("bare", lambda it: condition(it, "ScalingActive")[0] == "False")
    assert condition(status, "ScalingActive") == ("False", "FailedGetResourceMetric")
    await live.told("bare", "missing request for cpu in container c of Pod bare-")

    await live.autoscale("hits", "bare", metrics=[HITS])
    await live.until(
        "hits",
        lambda it: (
            condition(it, "ScalingActive")[1] in ("FailedGetPodsMetric", "AmbiguousSelector")
        ),
    )
    await live.told("hits", "are controlled by multiple HPAs: default/hits, default/bare")


async def test_what_an_adapter_measures_is_followed(
    live: Live, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await live.deploy("served", FAKE)
    await live.autoscale("served", metrics=[HITS])
    status = await live.until("served", lambda it: condition(it, "ScalingActive")[0] == "False")
    assert condition(status, "ScalingActive") == ("False", "FailedGetPodsMetric")
    await live.told("served", "no custom metrics API (custom.metrics.k8s.io) registered")

    directory = tmp_path_factory.mktemp("adapter")
    async with adapter(directory, live.server.pki / "front-proxy-ca.crt", live.client) as measures:
        await live.told("served", "could not find the metric hits for pods/*")
        (pod,) = (await live.client.list(core.POD, live.namespace, labels="app=served")).items
        measures.custom["pods/*/hits"] = {pod.metadata.name: "many"}
        await live.told("served", "the adapter's value 'many' is no quantity")
        measures.custom["pods/*/hits"] = {pod.metadata.name: "30"}
        status = await live.until("served", lambda it: it.get("desiredReplicas") == 3)
        assert condition(status, "ScalingActive") == ("True", "ValidMetricFound")
        (metric,) = status["currentMetrics"]
        assert metric["pods"] == {"metric": {"name": "hits"}, "current": {"averageValue": "30"}}
        path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/hits"
        assert (path, "app=served") in measures.asked

        queue = {"name": "waiting", "selector": {"matchLabels": {"queue": "red"}}}
        external = {"metric": queue, "target": {"type": "AverageValue", "averageValue": "10"}}
        route = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "door"}
        whole = {
            "describedObject": route,
            "metric": {"name": "requests"},
            "target": {"type": "Value", "value": "100"},
        }
        both = [{"type": "External", "external": external}, {"type": "Object", "object": whole}]
        measures.custom["ingresses.networking.k8s.io/door/requests"] = {"door": "100"}
        measures.external["waiting?queue=red"] = ["15", "5"]
        await live.client.patch(AUTOSCALER, "served", {"spec": {"metrics": both}}, live.namespace)
        status = await live.until(
            "served",
            lambda it: len(it.get("currentMetrics") or ()) == 2 and it["desiredReplicas"] < 4,
        )
        by_type = {metric["type"]: metric for metric in status["currentMetrics"]}
        assert by_type["External"]["external"]["metric"] == queue
        assert by_type["Object"]["object"]["current"] == {"value": "100"}
        assert by_type["Object"]["object"]["describedObject"] == route


async def test_a_number_out_of_bounds_is_brought_back(live: Live) -> None:
    await live.deploy("many", FAKE)
    await live.client.patch(DEPLOYMENT, "many", {"spec": {"replicas": 6}}, "default")
    await live.autoscale("many")
    await live.told(
        "many", "New size: 4; reason: Current number of replicas above Spec.MaxReplicas"
    )
    await live.client.patch(DEPLOYMENT, "many", {"spec": {"replicas": 0}}, "default")
    status = await live.until("many", lambda it: condition(it, "ScalingActive")[0] == "False")
    assert condition(status, "ScalingActive") == ("False", "ScalingDisabled")


async def test_while_the_metrics_server_is_away_nothing_is_changed(live: Live) -> None:
    await live.deploy("blind", FAKE)
    await live.autoscale("blind")
    await live.until("blind", lambda it: condition(it, "ScalingActive")[0] == "True")
    before = await live.replicas("blind")
    live.metrics.kill()
    status = await live.until("blind", lambda it: condition(it, "ScalingActive")[0] == "False")
    assert condition(status, "ScalingActive") == ("False", "FailedGetResourceMetric")
    assert status["desiredReplicas"] == before == await live.replicas("blind")
    await live.told("blind", "unable to fetch metrics from resource metrics API")
    live.metrics.start()
    await live.until("blind", lambda it: condition(it, "ScalingActive")[0] == "True")


async def test_the_page_s_example(live: Live) -> None:
    found = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    # another story has pods of that name
    deployment, autoscaler = yaml.safe_load_all(found[1].replace(": web", ": shown"))
    deployment["spec"]["template"]["spec"]["nodeName"] = FAKE
    deployment["spec"]["template"]["metadata"]["annotations"] = {USAGE: "190m"}
    await live.client.create(DEPLOYMENT.untyped, deployment, live.namespace)
    await live.client.create(AUTOSCALER, autoscaler, live.namespace)
    status = await live.until("shown", lambda it: it.get("currentReplicas") == 5)
    assert condition(status, "ScalingActive") == ("True", "ValidMetricFound")


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_process_that_burns_a_processor(
    live: Live, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Real work is followed up and down, within seconds."""
    switch = tmp_path_factory.mktemp("switch")
    (switch / "on").touch()
    await live.deploy(
        "burner",
        NODE_NAME,
        image="python",
        command=["python3", "-c", BURN],
        volumeMounts=[{"name": "switch", "mountPath": "/switch"}],
        volumes=[{"name": "switch", "hostPath": {"path": str(switch)}}],
    )
    await live.autoscale("burner", maxReplicas=3)
    await live.until("burner", lambda it: it.get("currentReplicas") == 3, 90)
    (switch / "on").unlink()
    await live.until("burner", lambda it: it["currentReplicas"] == 1, 90)
