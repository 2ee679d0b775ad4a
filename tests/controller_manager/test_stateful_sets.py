"""StatefulSets on a real API server: order, names, volumes, revisions."""

from __future__ import annotations

from hekla.api.kubernetes.apps import CONTROLLER_REVISION, STATEFUL_SET
from hekla.api.kubernetes.claims import PERSISTENT_VOLUME_CLAIM
from tests.controller_manager.cluster import (
    client,
    controllers,
    eventually,
    kubelet,
    namespace,
    server,
    workload,
)

__all__ = ["client", "controllers", "kubelet", "namespace", "server"]

SETS, CLAIMS = STATEFUL_SET.untyped, PERSISTENT_VOLUME_CLAIM.untyped


def stateful_set(name, replicas, **spec):
    return workload(name, replicas=replicas, serviceName=name, **spec)


async def has(kubelet, *names):
    return await eventually(lambda: _has(kubelet, names))


async def _has(kubelet, names):
    found = await kubelet.pods(leaving=True)
    return (
        sorted(found) == sorted(names)
        and not any("deletionTimestamp" in p["metadata"] for p in found.values())
        and (found or True)
    )


async def all_ready(client, namespace, name, count, **status):
    async def look():
        tree = await client.get(SETS, name, namespace)
        seen = tree.get("status", {})
        generation = seen.get("observedGeneration") == tree["metadata"]["generation"]
        return (
            generation
            and seen.get("readyReplicas", 0) == count == seen["replicas"]
            and status.items() <= seen.items()
            and seen
        )

    return await eventually(look)


async def test_pods_start_one_after_the_other_and_leave_from_the_top(client, namespace, kubelet):
    await client.create(SETS, stateful_set("db", 3), namespace)

    for known in (["db-0"], ["db-0", "db-1"], ["db-0", "db-1", "db-2"]):
        await has(kubelet, *known)
        await kubelet.ready(known[-1])
    pod = (await kubelet.pods())["db-1"]
    assert pod["spec"]["hostname"] == "db-1" and pod["spec"]["subdomain"] == "db"
    assert pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "db-1"
    assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
    status = await all_ready(client, namespace, "db", 3)
    assert (
        status["currentRevision"]
        == status["updateRevision"]
        == pod["metadata"]["labels"]["controller-revision-hash"]
    )

    await client.patch(
        STATEFUL_SET, "db", {"spec": {"replicas": 1}}, namespace, subresource="scale"
    )

    await has(kubelet, "db-0")
    await all_ready(client, namespace, "db", 1)


async def test_scaling_halts_at_a_pod_that_is_not_well(client, namespace, kubelet):
    await client.create(SETS, stateful_set("halt", 2), namespace)
    await has(kubelet, "halt-0")
    await kubelet.report("halt-0", "Running", ready=False)
    await eventually(lambda: _observed(client, namespace, "halt", 1))
    assert await kubelet.names() == ["halt-0"]

    await kubelet.report("halt-0", "Running", ready=True)
    await has(kubelet, "halt-0", "halt-1")


async def _observed(client, namespace, name, replicas):
    return (await client.get(SETS, name, namespace)).get("status", {}).get("replicas") == replicas


async def test_parallel_ones_do_not_wait(client, namespace, kubelet):
    await client.create(
        SETS,
        stateful_set("burst", 3, podManagementPolicy="Parallel", ordinals={"start": 5}),
        namespace,
    )

    await has(kubelet, "burst-5", "burst-6", "burst-7")


async def test_claims_are_made_before_the_pod_and_follow_the_retention_policy(
    client, namespace, kubelet
):
    claim = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    policy = {"whenScaled": "Delete", "whenDeleted": "Retain"}
    tree = stateful_set(
        "vol", 2, volumeClaimTemplates=[claim], persistentVolumeClaimRetentionPolicy=policy
    )
    await client.create(SETS, tree, namespace)
    await has(kubelet, "vol-0")
    await kubelet.ready("vol-0")
    await has(kubelet, "vol-0", "vol-1")
    await kubelet.ready("vol-1")
    made = await client.get(CLAIMS, "data-vol-1", namespace)
    assert made["metadata"]["labels"] == {"app": "vol"} and not made["metadata"].get(
        "ownerReferences"
    )
    volumes = (await kubelet.pods())["vol-1"]["spec"]["volumes"]
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data-vol-1"}} in volumes

    await client.patch(STATEFUL_SET, "vol", {"spec": {"replicas": 1}}, namespace)

    await has(kubelet, "vol-0")
    await eventually(lambda: _claims(client, namespace, ["data-vol-0"]))


async def _claims(client, namespace, names):
    return [
        claim["metadata"]["name"] for claim in (await client.list(CLAIMS, namespace)).items
    ] == names


async def test_a_new_template_goes_from_the_top_as_far_as_the_partition_says(
    client, namespace, kubelet
):
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    await client.create(
        SETS,
        stateful_set("roll", 3, podManagementPolicy="Parallel", updateStrategy=strategy),
        namespace,
    )
    await has(kubelet, "roll-0", "roll-1", "roll-2")
    await kubelet.ready_all()
    before = (await all_ready(client, namespace, "roll", 3))["currentRevision"]

    await client.patch(
        STATEFUL_SET,
        "roll",
        {"spec": {"template": {"metadata": {"annotations": {"new": "1"}}}}},
        namespace,
    )

    async def updated(names):
        pods = await kubelet.pods()
        # after the look: a pod that came in between would never be ready once the look is content
        await kubelet.ready_all()
        return (
            sorted(
                name
                for name, pod in pods.items()
                if pod["metadata"].get("annotations", {}).get("new")
            )
            == names
        )

    await eventually(lambda: updated(["roll-2"]))
    status = await all_ready(client, namespace, "roll", 3, updatedReplicas=1)
    assert status["currentRevision"] == before != status["updateRevision"]

    await client.patch(
        STATEFUL_SET,
        "roll",
        {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}},
        namespace,
    )
    await eventually(lambda: updated(["roll-0", "roll-1", "roll-2"]))
    status = await all_ready(client, namespace, "roll", 3, currentReplicas=3)
    assert status["currentRevision"] == status["updateRevision"]
    revisions = (await client.list(CONTROLLER_REVISION.untyped, namespace)).items
    assert sorted(
        revision["revision"]
        for revision in revisions
        if revision["metadata"]["name"].startswith("roll-")
    ) == [1, 2]


async def test_going_back_brings_the_old_revision_to_the_front(client, namespace, kubelet):
    await client.create(SETS, stateful_set("back", 1), namespace)
    await has(kubelet, "back-0")
    first = (await eventually(lambda: _revision(client, namespace, "back", 1)))["updateRevision"]
    for number, note in ((2, "1"), (3, None)):
        await client.patch(
            STATEFUL_SET,
            "back",
            {"spec": {"template": {"metadata": {"annotations": {"new": note}}}}},
            namespace,
        )
        last = await eventually(lambda n=number: _revision(client, namespace, "back", n))
    assert last["updateRevision"] == first


async def _revision(client, namespace, name, number):
    tree = await client.get(SETS, name, namespace)
    status = tree.get("status", {})
    if status.get("observedGeneration") != tree["metadata"]["generation"]:
        return None
    revision = await client.get(CONTROLLER_REVISION.untyped, status["updateRevision"], namespace)
    return status if revision["revision"] == number else None


async def test_a_failed_pod_is_made_again_under_its_name(client, namespace, kubelet):
    await client.create(SETS, stateful_set("again", 1), namespace)
    await has(kubelet, "again-0")
    uid = (await kubelet.pods())["again-0"]["metadata"]["uid"]

    await kubelet.report("again-0", "Failed", reason="Evicted")

    async def renewed():
        pod = (await kubelet.pods()).get("again-0")
        return pod is not None and pod["metadata"]["uid"] != uid

    await eventually(renewed)
