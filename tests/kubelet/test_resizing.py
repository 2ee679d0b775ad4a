"""Another size for a pod that runs: asked for through `resize`, given by the node, told in the
status."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from hekla.api.trees import Json
from hekla.kube.errors import Invalid
from hekla.local.kubelet.runtime import cgroups
from tests.kubelet.live_cluster import POD, Cluster, cluster, condition, container

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def live(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    async with cluster(
        tmp_path_factory.mktemp("resizing"), "--node-cpu=4", "--node-memory=4Gi"
    ) as made:
        yield made


def sized(cpu: str, memory: str, **more: Any) -> Json:
    return {
        "resources": {
            "requests": {"cpu": cpu, "memory": memory},
            "limits": {"cpu": cpu, "memory": memory},
        },
        **more,
    }


async def start(live: Cluster, name: str, c: Json, **spec: Any) -> Json:
    await live.create(name, "sleep", "600", c=c, restartPolicy="Always", **spec)
    return await live.phase(name, "Running")


async def resize(live: Cluster, name: str, cpu: str, memory: str) -> Json:
    patch = {"spec": {"containers": [{"name": "c", **sized(cpu, memory)}]}}
    return await live.client.patch(
        POD, name, patch, live.namespace, type="strategic", subresource="resize"
    )


def limits(pod: Json) -> Json:
    found = container(pod).get("resources", {}).get("limits", {})
    assert isinstance(found, dict)
    return found


async def test_a_running_container_grows_and_shrinks(live: Cluster) -> None:
    before = await start(live, "grows", sized("100m", "64Mi"))
    told = await resize(live, "grows", "300m", "128Mi")
    assert told["metadata"]["generation"] == before["metadata"]["generation"] + 1
    now = await live.until("grows", lambda pod: limits(pod) == {"cpu": "300m", "memory": "128Mi"})
    status = container(now)
    assert status["allocatedResources"] == {"cpu": "300m", "memory": "128Mi"}
    assert (status["restartCount"], status["containerID"]) == (0, container(before)["containerID"])
    await resize(live, "grows", "200m", "96Mi")
    await live.until(
        "grows",
        lambda pod: (
            limits(pod) == {"cpu": "200m", "memory": "96Mi"} and container(pod)["restartCount"] == 0
        ),
    )
    await live.until(
        "grows",
        lambda pod: pod["status"]["observedGeneration"] == before["metadata"]["generation"] + 2,
    )


async def test_the_control_group_holds_the_new_limit(live: Cluster) -> None:
    base, why_not = cgroups.find()
    if base is None:
        pytest.skip(f"no control groups: {why_not}")
    pod = await start(live, "grouped", sized("100m", "64Mi"))
    await resize(live, "grouped", "200m", "80Mi")
    await live.until("grouped", lambda pod: limits(pod).get("memory") == "80Mi")
    place = base.tree(live.kubelet.root)["memory"] / "kubepods" / f"pod{pod['metadata']['uid']}"
    name = "memory.max" if base.version == 2 else "memory.limit_in_bytes"
    groups = [place, *(entry for entry in place.iterdir() if entry.is_dir())]
    assert [int((group / name).read_text()) for group in groups] == [80 << 20] * 2


async def test_what_wants_a_restart_gets_one(live: Cluster) -> None:
    policy = [
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
    ]
    await start(live, "restarts", sized("100m", "64Mi", resizePolicy=policy))
    await resize(live, "restarts", "200m", "64Mi")
    now = await live.until("restarts", lambda pod: limits(pod).get("cpu") == "200m")
    assert container(now)["restartCount"] == 0
    await resize(live, "restarts", "200m", "128Mi")
    await live.until(
        "restarts",
        lambda pod: (
            container(pod).get("restartCount") == 1 and "running" in container(pod)["state"]
        ),
    )
    assert limits(await live.pod("restarts")) == {"cpu": "200m", "memory": "128Mi"}


async def test_what_the_node_has_no_room_for_waits(live: Cluster) -> None:
    await start(live, "large", sized("2", "64Mi"))
    await start(live, "wants", sized("100m", "64Mi"))
    await resize(live, "wants", "3", "64Mi")
    waits = await live.until(
        "wants", lambda pod: condition(pod, "PodResizePending").get("reason") == "Deferred"
    )
    assert limits(waits) == {"cpu": "100m", "memory": "64Mi"}
    await resize(live, "wants", "100", "64Mi")
    await live.until(
        "wants", lambda pod: condition(pod, "PodResizePending").get("reason") == "Infeasible"
    )
    await resize(live, "wants", "3", "64Mi")
    await live.client.delete(POD, "large", live.namespace, grace=0)
    await live.gone("large")
    await live.until(
        "wants",
        lambda pod: limits(pod).get("cpu") == "3" and not condition(pod, "PodResizePending"),
    )
    await live.client.delete(POD, "wants", live.namespace, grace=0)


async def test_what_resize_does_not_change(live: Cluster) -> None:
    await start(
        live, "same", {"resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}}
    )

    async def refused(resources: Json) -> str:
        patch = [{"op": "replace", "path": "/spec/containers/0/resources", "value": resources}]
        with pytest.raises(Invalid) as error:
            await live.client.patch(
                POD, "same", patch, live.namespace, type="json", subresource="resize"
            )
        return str(error.value)

    assert "Pod QOS Class may not change as a result of resizing" in await refused(
        {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    )
    assert "resource limits cannot be removed" in await refused({"requests": {"cpu": "100m"}})
    assert "only cpu and memory resources are mutable" in await refused(
        {"requests": {"cpu": "100m", "ephemeral-storage": "1Gi"}, "limits": {"cpu": "200m"}}
    )
    assert "must be less than or equal to cpu limit" in await refused(
        {"requests": {"cpu": "300m"}, "limits": {"cpu": "200m"}}
    )
    patch = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "other"}], "priority": 7},
    }
    told = await live.client.patch(
        POD, "same", patch, live.namespace, type="strategic", subresource="resize"
    )
    assert told["spec"]["containers"][0]["image"] == "busybox" and "labels" not in told["metadata"]
    with pytest.raises(Invalid):  # and without the subresource, resources stay
        change = {
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "150m"}}}]}
        }
        await live.client.patch(POD, "same", change, live.namespace, type="strategic")
