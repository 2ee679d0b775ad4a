"""A metrics server beside an API server and a kubelet: what kubectl shows of pods that work."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from hekla.api.text import quantity
from hekla.api.trees import Json
from hekla.engine.policies import default_policy
from hekla.engine.world import World
from hekla.kube.errors import ApiError, NotFound
from hekla.local.kubelet.nodes.own_nodes import FAKE_NAME
from hekla.scheduler.node_usage import LoadCollector
from tests.cli.answers import command
from tests.kubelet.live_cluster import NODE_NAME, PATIENCE, POD, Cluster, cluster
from tests.metrics_server.process import MetricsServerProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")
METRICS = "/apis/metrics.k8s.io/v1beta1"
API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io"

FAKE = f"{FAKE_NAME}-0"


class Live:
    def __init__(self, cluster: Cluster, metrics: MetricsServerProcess) -> None:
        self.cluster = cluster
        self.metrics = metrics

    async def get(self, path: str) -> Json:
        answer = await self.cluster.client.request("GET", path)
        found: Json = json.loads(answer.body)
        return found

    async def until(self, path: str, seen: Callable[[Json], bool]) -> Json:
        deadline = time.monotonic() + PATIENCE
        said: object = None
        while time.monotonic() < deadline:
            try:
                said = found = await self.get(path)
                if seen(found):
                    return found
            except ApiError as error:
                said = error
            await asyncio.sleep(0.2)
        raise AssertionError(f"{path}: {said}\n{self.metrics.log.read_text()[-2000:]}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Live]:
    directory = tmp_path_factory.mktemp("metrics")
    async with cluster(directory, "--fake-nodes=2") as made:
        metrics = MetricsServerProcess(directory, made.server)
        metrics.start()
        try:
            yield Live(made, metrics)
        finally:
            metrics.kill()


def cores(container: Json) -> float:
    return quantity.milli(container["usage"]["cpu"]) / 1000


async def test_a_pod_that_burns_and_its_node(live: Live) -> None:
    await live.cluster.create("burner", "python3", "-c", "while True: pass")
    pod = await live.until(
        f"{METRICS}/namespaces/default/pods/burner", lambda it: cores(it["containers"][0]) > 0.02
    )
    assert pod["kind"] == "PodMetrics" and pod["window"].endswith("s")
    assert quantity.whole(pod["containers"][0]["usage"]["memory"]) > 1 << 20
    node = await live.get(f"{METRICS}/nodes/{NODE_NAME}")
    assert cores(node) > 0
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == NODE_NAME


async def test_a_pod_on_a_fake_node_uses_what_it_says(live: Live) -> None:
    spec = {"containers": [{"name": "c", "image": "x"}], "nodeName": FAKE}
    usage = {"kwok.x-k8s.io/usage-cpu": "750m", "kwok.x-k8s.io/usage-memory": "1Gi"}
    for name, marks in (("busy", usage), ("modest", {}), ("odd", {"kwok.x-k8s.io/usage-cpu": "x"})):
        body = {"metadata": {"name": name, "annotations": marks, "labels": {"of": "fakes"}}}
        await live.cluster.client.create(POD, {**body, "spec": spec}, "default")
    found = await live.until(
        f"{METRICS}/pods?labelSelector=of%3Dfakes", lambda it: len(it["items"]) == 3
    )
    shown = {it["metadata"]["name"]: it["containers"][0]["usage"] for it in found["items"]}
    assert shown["busy"] == {"cpu": "750000000n", "memory": "1048576Ki"}
    assert shown["modest"] == {"cpu": "1000000n", "memory": "1024Ki"} == shown["odd"]
    node = await live.get(f"{METRICS}/nodes/{FAKE}")
    assert node["usage"] == {"cpu": "752000000n", "memory": f"{1048576 + 2048}Ki"}


async def test_the_scheduler_reads_them(live: Live) -> None:
    await live.until(f"{METRICS}/nodes", lambda it: len(it["items"]) == 3)
    here = World(default_policy())
    here.nodes(NODE_NAME, FAKE, cpu=2, memory=4 << 30)
    settings = {"type": "metrics_server"}
    collector = LoadCollector(live.cluster.client, here.state, lambda: settings, lambda: None)
    found = await collector.ask(settings)
    assert found[NODE_NAME].memory > 0 and found[FAKE].cpu >= 0


async def test_what_is_not_there(live: Live) -> None:
    await live.until(f"{METRICS}/nodes", lambda it: it["kind"] == "NodeMetricsList")
    with pytest.raises(NotFound) as error:
        await live.get(f"{METRICS}/namespaces/default/pods/nobody")
    assert 'pods.metrics.k8s.io "default/nobody" not found' in str(error.value)
    with pytest.raises(ApiError) as refused:
        await live.get(f"{METRICS}/pods?labelSelector=a%3D%3D%3Db")
    assert refused.value.code == 400


async def test_kubectl_top(live: Live) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    await live.until(f"{METRICS}/nodes", lambda it: len(it["items"]) == 3)
    for what in ("nodes", "pods"):
        done = await asyncio.to_thread(
            subprocess.run,
            [kubectl, "--kubeconfig", str(live.cluster.server.kubeconfig), "top", what],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("NAME"), done.stdout


async def test_vcctl_top(live: Live) -> None:
    await live.until(f"{METRICS}/nodes", lambda it: len(it["items"]) == 3)
    kubeconfig = f"--kubeconfig={live.cluster.server.kubeconfig}"
    for what, seen in (
        ("nodes", rf"{NODE_NAME} +\d+ +\d+m +0m \(0%\) +\d+m \(\d+%\)"),
        ("pods", r"default/busy +\S+ +0m +750m"),
    ):
        done = await asyncio.to_thread(command, "vcctl", "top", what, kubeconfig)
        assert re.search(seen, done.stdout), done.stdout + done.stderr


async def test_killed_and_started_again(live: Live) -> None:
    await live.until(f"{METRICS}/nodes", lambda it: len(it["items"]) == 3)
    live.metrics.kill()
    live.metrics.start()
    await live.until(f"{METRICS}/nodes", lambda it: len(it["items"]) == 3)


async def test_somebody_elses_registration_stays(live: Live) -> None:
    await live.until(f"{METRICS}/nodes", lambda it: len(it["items"]) == 3)
    body = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "somebody"}}}
    body["spec"] = {"service": {"name": "another"}}  # type: ignore[dict-item]
    await live.cluster.client.request(
        "PATCH", API_SERVICE, body=body, headers={"Content-Type": "application/merge-patch+json"}
    )
    live.metrics.kill()
    live.metrics.start()
    deadline = time.monotonic() + PATIENCE
    while "somebody else's" not in live.metrics.log.read_text():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    assert (await live.get(API_SERVICE))["spec"]["service"]["name"] == "another"
