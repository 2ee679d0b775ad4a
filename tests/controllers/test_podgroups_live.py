"""Plain pods against a real API server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hekla.api import names, scheduling
from hekla.api.kubernetes import apps, core
from tests.apiserver_process import ApiServerProcess, shared_apiserver
from tests.controllers.cluster import Cluster, running

__all__ = ["shared_apiserver"]


@pytest.fixture
async def cluster(shared_apiserver: ApiServerProcess) -> AsyncIterator[Cluster]:
    async with running(shared_apiserver) as made:
        made.hold = made.running = False
        yield made


def body(name: str, scheduler: str = "volcano", **metadata: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


async def group_of(cluster: Cluster, name: str) -> str:
    def named() -> str | None:
        pod = cluster.pods.get(f"default/{name}")
        return (pod["metadata"].get("annotations") or {}).get(names.GROUP_NAME) if pod else None

    return await cluster.until(named, lambda: f"a group of {name}")


@pytest.mark.scenario("controllers", 93)
@pytest.mark.scenario("controllers", 17)
async def test_a_pod_gets_a_group_if_it_asks_for_the_scheduler(cluster: Cluster) -> None:
    await cluster.client.create(core.POD.untyped, body("stranger", "default-scheduler"), "default")
    pod = await cluster.client.create(core.POD.untyped, body("plain"), "default")
    name = await group_of(cluster, "plain")
    assert name == f"podgroup-{pod['metadata']['uid']}"
    group = await cluster.until(lambda: cluster.groups.get(f"default/{name}"))
    assert group.spec.min_member == 1 and group.spec.min_resources["cpu"] == "1"
    stranger = cluster.pods.get("default/stranger")
    assert stranger is not None and names.GROUP_NAME not in (
        stranger["metadata"].get("annotations") or {}
    )


def group_named_by(cluster: Cluster, name: str) -> str | None:
    pod = cluster.pods.get(f"default/{name}")
    assert pod is not None
    return (pod["metadata"].get("annotations") or {}).get(names.GROUP_NAME)


async def test_a_pod_that_is_bound_within_a_moment_needs_no_object(cluster: Cluster) -> None:
    made = await cluster.client.create(core.POD.untyped, body("quick"), "default")
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    await cluster.client.post(
        core.POD, "quick", "default", "binding", {"metadata": {"name": "quick"}, "target": target}
    )
    await cluster.client.create(core.POD.untyped, body("slow"), "default")
    assert await group_of(cluster, "slow")
    assert group_named_by(cluster, "quick") is None
    assert cluster.groups.get(f"default/podgroup-{made['metadata']['uid']}") is None


async def test_a_pod_that_asks_something_of_its_group_gets_it_at_once(cluster: Cluster) -> None:
    await cluster.client.create(core.POD.untyped, body("unasking"), "default")
    asking = body("asking", annotations={names.PREEMPTABLE: "true"})
    await cluster.client.create(core.POD.untyped, asking, "default")
    name = await group_of(cluster, "asking")
    group = await cluster.until(lambda: cluster.groups.get(f"default/{name}"))
    assert group.metadata.annotations == {names.PREEMPTABLE: "true"}
    assert group_named_by(cluster, "unasking") is None


async def test_all_pods_get_theirs_at_once_where_that_is_set(
    shared_apiserver: ApiServerProcess,
) -> None:
    async with running(shared_apiserver, "--podgroups=always") as made:
        made.hold = made.running = False
        target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        await made.client.create(core.POD.untyped, body("any"), "default")
        await made.client.post(
            core.POD,
            "any",
            "default",
            "binding",
            {"metadata": {"name": "any"}, "target": target},
        )
        assert await group_of(made, "any")


async def replica_set(cluster: Cluster, name: str, replicas: int) -> str:
    """A ReplicaSet as a Deployment makes it, with its pods; gives the name of their group."""
    template = {"metadata": {"labels": {"app": name}}, "spec": body("x")["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    owner = await cluster.client.create(
        apps.REPLICA_SET.untyped, {"metadata": {"name": name}, "spec": spec}, "default"
    )
    uid = owner["metadata"]["uid"]
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": name,
        "uid": uid,
        "controller": True,
    }
    for number in range(replicas):
        await cluster.client.create(
            core.POD.untyped, body(f"{name}-{number}", ownerReferences=[reference]), "default"
        )
    return await group_of(cluster, f"{name}-0")


@pytest.mark.scenario("plugins-fairness", 175)
async def test_after_a_change_of_the_template_one_group_is_left(cluster: Cluster) -> None:
    """What a Deployment does then: a second ReplicaSet, and the first one goes down to nothing."""
    before = await replica_set(cluster, "shop-1", 2)
    await cluster.until(lambda: cluster.groups.get(f"default/{before}"))
    after = await replica_set(cluster, "shop-2", 2)
    await cluster.until(lambda: cluster.groups.get(f"default/{after}"))
    await cluster.client.patch(
        apps.REPLICA_SET.untyped, "shop-1", {"spec": {"replicas": 0}}, "default"
    )
    await cluster.gone(scheduling.POD_GROUP, before)
    assert before != after
    assert cluster.groups.get(f"default/{after}") is not None


@pytest.mark.scenario("controllers", 94)
@pytest.mark.scenario("controllers", 100)
async def test_the_pods_of_a_replica_set_share_a_group(cluster: Cluster) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": body("x")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    metadata = {"name": "web", "annotations": {names.GROUP_MIN_MEMBER: "2"}}
    owner = await cluster.client.create(
        apps.REPLICA_SET.untyped, {"metadata": metadata, "spec": spec}, "default"
    )
    uid = owner["metadata"]["uid"]
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": uid,
        "controller": True,
    }
    for name in ("web-a", "web-b"):
        await cluster.client.create(
            core.POD.untyped, body(name, ownerReferences=[reference]), "default"
        )
    assert await group_of(cluster, "web-a") == await group_of(cluster, "web-b") == f"podgroup-{uid}"
    group = await cluster.until(lambda: cluster.groups.get(f"default/podgroup-{uid}"))
    assert group.spec.min_member == 2 and group.spec.min_resources["cpu"] == "2"
    await cluster.client.patch(
        apps.REPLICA_SET.untyped, "web", {"spec": {"replicas": 0}}, "default"
    )
    await cluster.gone(scheduling.POD_GROUP, f"podgroup-{uid}")


async def stateful_set(cluster: Cluster, name: str, **annotations: str) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": body("x")["spec"]}
    spec = {
        "replicas": 2,
        "serviceName": name,
        "selector": {"matchLabels": {"app": name}},
        "template": template,
    }
    metadata = {"name": name, "annotations": annotations}
    owner = await cluster.client.create(
        apps.STATEFUL_SET.untyped, {"metadata": metadata, "spec": spec}, "default"
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": name,
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


@pytest.mark.scenario("controllers", 97)
async def test_the_pods_of_a_stateful_set(cluster: Cluster) -> None:
    owner = await stateful_set(cluster, "db")
    group = f"default/podgroup-{owner['uid']}"
    await cluster.client.create(
        core.POD.untyped, body("db-x", "default-scheduler", ownerReferences=[owner]), "default"
    )
    marked = body("db-y", ownerReferences=[owner], annotations={names.GROUP_NAME: "mine"})
    await cluster.client.create(core.POD.untyped, marked, "default")
    await cluster.client.create(core.POD.untyped, body("later"), "default")
    await group_of(cluster, "later")
    assert cluster.groups.get(group) is None, "no pod of it asks for a group"
    await cluster.client.create(core.POD.untyped, body("db-0", ownerReferences=[owner]), "default")
    assert f"default/{await group_of(cluster, 'db-0')}" == group
    assert await group_of(cluster, "db-y") == "mine"


@pytest.mark.scenario("controllers", 98)
async def test_a_group_follows_the_template(cluster: Cluster) -> None:
    owner = await stateful_set(cluster, "grows", **{names.GROUP_MIN_MEMBER: "2"})
    await cluster.client.create(
        core.POD.untyped, body("grows-0", ownerReferences=[owner]), "default"
    )
    name = await group_of(cluster, "grows-0")
    await cluster.until(lambda: cluster.groups.get(f"default/{name}"))
    fresh = body(
        "grows-1",
        ownerReferences=[owner],
        labels={names.COOLDOWN_TIME: "5m"},
        annotations={names.PREEMPTABLE: "true", names.NETWORK_TOPOLOGY_MODE: "soft"},
    )
    fresh["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    await cluster.client.create(core.POD.untyped, fresh, "default")
    assert await group_of(cluster, "grows-1") == name

    def renewed() -> bool:
        group = cluster.groups.get(f"default/{name}")
        assert group is not None
        topology = group.spec.network_topology
        return (
            group.spec.min_resources["cpu"] == "6"
            and topology is not None
            and topology.mode == "soft"
            and group.metadata.labels.get(names.COOLDOWN_TIME) == "5m"
            and group.metadata.annotations.get(names.PREEMPTABLE) == "true"
        )

    await cluster.until(renewed, lambda: str(cluster.groups.get(f"default/{name}")))


@pytest.mark.parametrize(
    ("version", "kind"),
    [("apps/v1", "DaemonSet"), ("batch/v1", "Job"), ("v1", "ReplicationController"), ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
     ("example.com/v1", "Robot")],
)  # fmt: skip
async def test_whoever_owns_pods_owns_their_group(
    cluster: Cluster, version: str, kind: str
) -> None:
    name = kind.lower()
    owner = {
        "apiVersion": version,
        "kind": kind,
        "name": name,
        "uid": f"uid-of-{name}",
        "controller": True,
    }
    for number in range(2):
        await cluster.client.create(
            core.POD.untyped, body(f"{name}-{number}", ownerReferences=[owner]), "default"
        )
        assert await group_of(cluster, f"{name}-{number}") == f"podgroup-uid-of-{name}"
    group = await cluster.until(lambda: cluster.groups.get(f"default/podgroup-uid-of-{name}"))
    assert [(each.kind, each.name) for each in group.metadata.owner_references] == [(kind, name)]


async def test_a_pod_whose_group_is_refused_says_why_nobody_schedules_it(cluster: Cluster) -> None:
    owner = {
        "apiVersion": "example.com/v1",
        "kind": "Robot",
        "name": "robot",
        "uid": "No_Name",
        "controller": True,
    }
    await cluster.client.create(
        core.POD.untyped, body("refused", ownerReferences=[owner]), "default"
    )

    async def told() -> str:
        found = (await cluster.client.list(core.EVENT.untyped, "default")).items
        return next(
            (one["message"] for one in found if one["reason"] == "FailedCreatePodGroup"), ""
        )

    async with asyncio.timeout(20):
        while not (message := await told()):
            await asyncio.sleep(0.05)
    assert message.startswith("no PodGroup could be made for the pod, so it is not scheduled: ")
    assert "podgroup-No_Name" in message, "which is no name that an object may have"
