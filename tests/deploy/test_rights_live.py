"""What the scheduler and the controllers do rarely, on Kubernetes' own server, with the accounts of
the chart.

The server also asks who sets `blockOwnerDeletion` whether he may write finalizers.  When it stops,
requests that were forbidden fail the run (tests/kubernetes/reference.py); what is looked at here is
that the requests are made at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import Api, Tree
from tests.controllers.whole.place import BATCH, PODS, Place, a_task, on
from tests.kubernetes import programs
from tests.kubernetes.reference import reference

pytestmark = programs.slow(60)

RESOURCE = "/apis/resource.k8s.io/v1"
STORAGE = "/apis/storage.k8s.io/v1"
SHARDS = "/apis/shard.volcano.sh/v1alpha1/nodeshards"
APPS = "/apis/apps/v1/namespaces/default"
NODES = 2


@pytest.fixture(scope="module")
def place(servers: dict[str, Path]) -> Iterator[Place]:
    with reference("--enable-admission-plugins=OwnerReferencesPermissionEnforcement") as server:
        server.add_nodes("--nodes=0", f"--fake-nodes={NODES}", "--fake-node-cpu=4")
        server.add_scheduler("--scheduler-sharding-mode=soft")
        server.add_webhooks()
        yield Place(Api(server.kubeconfig)).ready(NODES)


def pod(name: str, *, scheduler: str = "volcano", **spec: Any) -> Tree:
    claims = {"claims": [{"name": claim["name"]} for claim in spec.get("resourceClaims", [])]}
    container = {
        "name": "main",
        "image": "pause",
        "resources": {"requests": {"cpu": "100m"}, **claims},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }


def bound(place: Place, name: str) -> Tree:
    """The pod, once it has a node."""
    place.until(
        lambda: place.api.get(f"{PODS}/{name}").tree.get("spec", {}).get("nodeName"),
        lambda: place.api.get(f"{PODS}/{name}"),
    )
    return place.api.get(f"{PODS}/{name}").tree


def test_devices_are_allocated(place: Place) -> None:
    api, node = place.api, place.nodes[0]
    api.create(
        f"{RESOURCE}/deviceclasses",
        {
            "metadata": {"name": "cards"},
            "spec": {
                "selectors": [{"cel": {"expression": "device.driver == 'cards.example.com'"}}]
            },
        },
    )
    api.create(
        f"{RESOURCE}/resourceslices",
        {
            "metadata": {"name": "cards"},
            "spec": {
                "driver": "cards.example.com",
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "card-0"}],
            },
        },
    )
    requests = {
        "devices": {"requests": [{"name": "card", "exactly": {"deviceClassName": "cards"}}]}
    }
    claims = f"{RESOURCE}/namespaces/default/resourceclaims"
    api.create(claims, {"metadata": {"name": "mine"}, "spec": requests})
    api.create(
        PODS, pod("with-card", resourceClaims=[{"name": "card", "resourceClaimName": "mine"}])
    )
    assert bound(place, "with-card")["spec"]["nodeName"] == node
    status = api.get(f"{claims}/mine").tree["status"]
    assert (
        status["allocation"]["devices"]["results"][0]["device"] == "card-0"
        and status["reservedFor"][0]["name"] == "with-card"
    )


def test_volumes_are_promised(place: Place) -> None:
    api = place.api
    api.create(
        f"{STORAGE}/storageclasses",
        {
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [place.nodes[1]]}
    api.create(
        "/api/v1/persistentvolumes",
        {
            "metadata": {"name": "disk"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "local": {"path": "/disk"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            },
        },
    )
    api.create(
        "/api/v1/namespaces/default/persistentvolumeclaims",
        {
            "metadata": {"name": "kept"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "local",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        },
    )
    api.create(
        PODS,
        pod(
            "with-disk", volumes=[{"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}]
        ),
    )
    assert bound(place, "with-disk")["spec"]["nodeName"] == place.nodes[1]


def test_a_shard_is_told_who_uses_it(place: Place) -> None:
    kind = {"apiVersion": "shard.volcano.sh/v1alpha1", "kind": "NodeShard"}
    place.api.create(
        SHARDS, {**kind, "metadata": {"name": "volcano"}, "spec": {"nodesDesired": place.nodes[:1]}}
    )
    place.until(
        lambda: (
            place.api.get(f"{SHARDS}/volcano").tree.get("status", {}).get("nodesInUse")
            == place.nodes[:1]
        ),
        lambda: place.api.get(f"{SHARDS}/volcano"),
    )
    place.api.delete(f"{SHARDS}/volcano")


def test_workloads_of_others_get_groups(place: Place) -> None:
    """From the annotations of what owns the pods, and the groups of those that stand idle go."""
    groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x")["spec"]}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": template,
        "serviceName": "web",
        "podManagementPolicy": "Parallel",
    }
    notes = {"scheduling.volcano.sh/group-min-member": "2"}
    made = place.api.create(
        f"{APPS}/statefulsets", {"metadata": {"name": "web", "annotations": notes}, "spec": spec}
    )
    group = f"{groups}/podgroup-{made['metadata']['uid']}"
    bound(place, "web-1")
    assert place.api.get(group).tree["spec"]["minMember"] == 2
    assert place.api.patch(f"{APPS}/statefulsets/web", {"spec": {"replicas": 0}}).status == 200
    place.until(lambda: place.api.get(group).status == 404, lambda: place.api.get(group))


def test_jobs_have_companions_and_end_in_many_ways(place: Place) -> None:
    """Services, ConfigMaps, Secrets, NetworkPolicies and claims beside the pods; restarts; logs of
    what failed; commands to queues."""
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "resources": {"requests": {"storage": "1Mi"}},
    }
    place.run(
        "full",
        a_task(),
        plugins={"svc": [], "ssh": [], "env": []},
        volumes=[{"mountPath": "/x", "volumeClaim": claim}],
    )
    place.until(lambda: place.pods("full"), lambda: place.job("full"))
    made = {"services": "full", "configmaps": "full-svc", "secrets": "full-ssh"}
    assert all(
        place.api.get(f"/api/v1/namespaces/default/{kind}/{name}").status == 200
        for kind, name in made.items()
    )
    assert (
        place.api.get("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/full").status
        == 200
    )
    claims = [
        one["metadata"]["name"]
        for one in place.items("/api/v1/namespaces/default/persistentvolumeclaims")
    ]
    assert any(name.startswith("full-") for name in claims), claims
    place.remove("full")
    place.run("short", a_task(command="sleep 0.2"), ttlSecondsAfterFinished=0)
    place.until(lambda: place.api.get(f"{BATCH}/short").status == 404, lambda: place.job("short"))
    place.run(
        "failing", a_task(command="sleep 0.2; exit 3", policies=[on("PodFailed", "AbortJob")])
    )
    place.phase("failing", "Aborted")
    place.queue("closing")
    bus = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"generateName": "close-"},
        "action": "CloseQueue",
    }
    queue = place.api.get("/apis/scheduling.volcano.sh/v1beta1/queues/closing").tree
    target = {key: queue[key] for key in ("apiVersion", "kind")} | {
        key: queue["metadata"][key] for key in ("name", "uid")
    }
    place.api.create(
        "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands", {**bus, "target": target}
    )
    place.until(lambda: not place.open("closing"))
