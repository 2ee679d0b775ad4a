"""DaemonSets on a real API server: which nodes get a pod, and how a template is replaced."""

from __future__ import annotations

import uuid

import pytest

from hekla.api.kubernetes import core
from hekla.api.kubernetes.apps import CONTROLLER_REVISION, DAEMON_SET
from tests.controller_manager.cluster import (
    client,
    controllers,
    eventually,
    kubelet,
    namespace,
    now,
    server,
    workload,
)

__all__ = ["client", "controllers", "kubelet", "namespace", "server"]

SETS, NODES = DAEMON_SET.untyped, core.NODE.untyped


@pytest.fixture
async def pool(client):
    """Makes nodes of a label of their own, and takes them away afterwards."""
    label, made = f"pool-{uuid.uuid4().hex[:6]}", []

    async def make(name, **spec):
        status = {
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "lastHeartbeatTime": now(),
                    "lastTransitionTime": now(),
                }
            ]
        }
        meta = {"name": f"{label}-{name}", "labels": {"pool": label}}
        meta = {"name": f"{label}-{name}", "labels": {"pool": label}}
        tree = await client.create(NODES, {"metadata": meta, "spec": spec, "status": status})
        made.append(tree["metadata"]["name"])
        # Without what admission adds to new nodes.
        await client.patch(NODES, made[-1], {"spec": {"taints": spec.get("taints")}})
        return made[-1]

    make.label = label
    yield make
    for name in made:
        await client.delete(NODES, name)


def daemon_set(name, pool, **spec):
    tree = workload(name, **spec)
    tree["spec"]["template"]["spec"]["nodeSelector"] = {"pool": pool.label}
    return tree


def target(pod):
    terms = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    return terms[0]["matchFields"][0]["values"][0]


async def on(kubelet, *nodes):
    async def look():
        pods = await kubelet.pods()
        return sorted(map(target, pods.values())) == sorted(nodes) and pods

    return await eventually(look)


async def start_all(client, kubelet):
    """What scheduler and nodes do."""
    for name, pod in (await kubelet.pods()).items():
        if not pod["spec"].get("nodeName"):
            binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": target(pod)}}
            await client.post(core.POD, name, kubelet.namespace, "binding", binding)
    await kubelet.ready_all()


async def test_one_pod_a_node_also_for_nodes_that_come_and_not_for_tainted_ones(
    client, namespace, kubelet, pool
):
    one = await pool("one")
    await pool("closed", taints=[{"key": "only", "value": "gpu", "effect": "NoSchedule"}])
    await client.create(SETS, daemon_set("log", pool), namespace)
    pods = await on(kubelet, one)
    tolerated = {
        (t["key"], t["effect"]) for pod in pods.values() for t in pod["spec"]["tolerations"]
    }
    assert ("node.kubernetes.io/unschedulable", "NoSchedule") in tolerated and (
        "node.kubernetes.io/not-ready",
        "NoExecute",
    ) in tolerated

    two = await pool("two", unschedulable=True)
    await on(kubelet, one, two)
    await start_all(client, kubelet)

    async def settled():
        status = (await client.get(SETS, "log", namespace)).get("status", {})
        names = (
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "numberAvailable",
            "updatedNumberScheduled",
        )
        return [status.get(name) for name in names] == [2, 2, 2, 2, 2] and status[
            "numberMisscheduled"
        ] == 0

    await eventually(settled)
    await client.patch(NODES, two, {"metadata": {"labels": {"pool": None}}})
    await on(kubelet, one)


async def test_a_new_template_replaces_pods_node_by_node(client, namespace, kubelet, pool):
    nodes = [await pool(name) for name in ("one", "two", "three")]
    await client.create(SETS, daemon_set("agent", pool), namespace)
    await on(kubelet, *nodes)
    await start_all(client, kubelet)
    first = await kubelet.pods()

    await client.patch(
        SETS,
        "agent",
        {"spec": {"template": {"metadata": {"annotations": {"new": "1"}}}}},
        namespace,
    )
    await eventually(lambda: _kept(kubelet, first, 2))
    assert await _kept(kubelet, first, 2), "one at a time"

    async def replaced():
        await start_all(client, kubelet)
        pods = await kubelet.pods()
        return len(pods) == 3 and not set(pods) & set(first)

    await eventually(replaced)
    revisions = (
        await client.list(CONTROLLER_REVISION.untyped, namespace, labels="app=agent")
    ).items
    assert sorted(revision["revision"] for revision in revisions) == [1, 2]


async def _kept(kubelet, first, count):
    return len(set(await kubelet.pods()) & set(first)) == count


async def test_going_back_touches_only_pods_that_went_ahead(client, namespace, kubelet, pool):
    nodes = [await pool(name) for name in ("one", "two")]
    await client.create(SETS, daemon_set("undo", pool), namespace)
    await on(kubelet, *nodes)
    await start_all(client, kubelet)
    first = await kubelet.pods()
    await client.patch(
        SETS, "undo", {"spec": {"template": {"metadata": {"annotations": {"bad": "1"}}}}}, namespace
    )
    await eventually(lambda: _kept(kubelet, first, 1))

    await client.patch(
        SETS,
        "undo",
        {"spec": {"template": {"metadata": {"annotations": {"bad": None}}}}},
        namespace,
    )

    async def back():
        await start_all(client, kubelet)
        pods = await kubelet.pods()
        return (
            len(pods) == 2
            and not any(
                (pod["metadata"].get("annotations") or {}).get("bad") for pod in pods.values()
            )
            and pods
        )

    assert len(set(await eventually(back)) & set(first)) == 1


async def test_in_a_surge_the_new_pod_comes_before_the_old_one_goes(
    client, namespace, kubelet, pool
):
    node = await pool("one")
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    await client.create(SETS, daemon_set("surge", pool, updateStrategy=strategy), namespace)
    await on(kubelet, node)
    await start_all(client, kubelet)
    (old,) = await kubelet.pods()

    await client.patch(
        SETS,
        "surge",
        {"spec": {"template": {"metadata": {"annotations": {"new": "1"}}}}},
        namespace,
    )
    await on(kubelet, node, node)
    await start_all(client, kubelet)

    assert old not in await on(kubelet, node)


async def test_on_delete_waits_for_somebody_to_delete(client, namespace, kubelet, pool):
    node = await pool("one")
    await client.create(
        SETS, daemon_set("calm", pool, updateStrategy={"type": "OnDelete"}), namespace
    )
    (old,) = await on(kubelet, node)
    await client.patch(
        SETS, "calm", {"spec": {"template": {"metadata": {"annotations": {"new": "1"}}}}}, namespace
    )
    await eventually(lambda: _seen(client, namespace, "calm"))
    assert list(await kubelet.pods()) == [old]

    await kubelet.remove(old)

    async def renewed():
        return [pod["metadata"]["annotations"] for pod in (await kubelet.pods()).values()] == [
            {"new": "1"}
        ]

    await eventually(renewed)


async def _seen(client, namespace, name):
    tree = await client.get(SETS, name, namespace)
    return tree.get("status", {}).get("observedGeneration") == tree["metadata"]["generation"]


async def test_a_failed_pod_is_replaced(client, namespace, kubelet, pool):
    node = await pool("one")
    await client.create(SETS, daemon_set("fails", pool), namespace)
    (name,) = await on(kubelet, node)

    await kubelet.report(name, "Failed")

    async def replaced():
        return name not in await on(kubelet, node)

    await eventually(replaced)
