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
from tests.controllers.whole_cluster.cluster import BATCH, PODS, WholeCluster, a_task, on
from tests.kubernetes import programs
from tests.kubernetes.reference import reference

pytestmark = programs.slow(60)

RESOURCE = "/apis/resource.k8s.io/v1"
STORAGE = "/apis/storage.k8s.io/v1"
SHARDS = "/apis/shard.volcano.sh/v1alpha1/nodeshards"
APPS = "/apis/apps/v1/namespaces/default"
NODES = 2


@pytest.fixture(scope="module")
def cluster(servers: dict[str, Path]) -> Iterator[WholeCluster]:
    with reference("--enable-admission-plugins=OwnerReferencesPermissionEnforcement") as server:
        server.add_nodes("--nodes=0", f"--fake-nodes={NODES}", "--fake-node-cpu=4")
        server.add_scheduler("--scheduler-sharding-mode=soft")
        server.add_webhooks()
        yield WholeCluster(Api(server.kubeconfig)).ready(NODES)


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


def bound(cluster: WholeCluster, name: str) -> Tree:
    """The pod, once it has a node."""
    cluster.until(
        lambda: cluster.api.get(f"{PODS}/{name}").tree.get("spec", {}).get("nodeName"),
        lambda: cluster.api.get(f"{PODS}/{name}"),
    )
    return cluster.api.get(f"{PODS}/{name}").tree


def test_devices_are_allocated(cluster: WholeCluster) -> None:
    api, node = cluster.api, cluster.nodes[0]
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
    assert bound(cluster, "with-card")["spec"]["nodeName"] == node
    status = api.get(f"{claims}/mine").tree["status"]
    assert (
        status["allocation"]["devices"]["results"][0]["device"] == "card-0"
        and status["reservedFor"][0]["name"] == "with-card"
    )


def test_volumes_are_promised(cluster: WholeCluster) -> None:
    api = cluster.api
    api.create(
        f"{STORAGE}/storageclasses",
        {
            "metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [cluster.nodes[1]]}
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
    assert bound(cluster, "with-disk")["spec"]["nodeName"] == cluster.nodes[1]


def test_a_shard_is_told_who_uses_it(cluster: WholeCluster) -> None:
    kind = {"apiVersion": "shard.volcano.sh/v1alpha1", "kind": "NodeShard"}
    cluster.api.create(
        SHARDS,
        {**kind, "metadata": {"name": "volcano"}, "spec": {"nodesDesired": cluster.nodes[:1]}},
    )
    cluster.until(
        lambda: (
            cluster.api.get(f"{SHARDS}/volcano").tree.get("status", {}).get("nodesInUse")
            == cluster.nodes[:1]
        ),
        lambda: cluster.api.get(f"{SHARDS}/volcano"),
    )
    cluster.api.delete(f"{SHARDS}/volcano")


def test_workloads_of_others_get_groups(cluster: WholeCluster) -> None:
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
    made = cluster.api.create(
        f"{APPS}/statefulsets", {"metadata": {"name": "web", "annotations": notes}, "spec": spec}
    )
    group = f"{groups}/podgroup-{made['metadata']['uid']}"
    bound(cluster, "web-1")
    assert cluster.api.get(group).tree["spec"]["minMember"] == 2
    assert cluster.api.patch(f"{APPS}/statefulsets/web", {"spec": {"replicas": 0}}).status == 200
    cluster.until(lambda: cluster.api.get(group).status == 404, lambda: cluster.api.get(group))


def test_jobs_have_companions_and_end_in_many_ways(cluster: WholeCluster) -> None:
    """Services, ConfigMaps, Secrets, NetworkPolicies and claims beside the pods; restarts; logs of
    what failed; commands to queues."""
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "resources": {"requests": {"storage": "1Mi"}},
    }
    cluster.run(
        "full",
        a_task(),
        plugins={"svc": [], "ssh": [], "env": []},
        volumes=[{"mountPath": "/x", "volumeClaim": claim}],
    )
    cluster.until(lambda: cluster.pods("full"), lambda: cluster.job("full"))
    made = {"services": "full", "configmaps": "full-svc", "secrets": "full-ssh"}
    assert all(
        cluster.api.get(f"/api/v1/namespaces/default/{kind}/{name}").status == 200
        for kind, name in made.items()
    )
    assert (
        cluster.api.get("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/full").status
        == 200
    )
    claims = [
        one["metadata"]["name"]
        for one in cluster.items("/api/v1/namespaces/default/persistentvolumeclaims")
    ]
    assert any(name.startswith("full-") for name in claims), claims
    cluster.remove("full")
    cluster.run("short", a_task(command="sleep 0.2"), ttlSecondsAfterFinished=0)
    cluster.until(
        lambda: cluster.api.get(f"{BATCH}/short").status == 404, lambda: cluster.job("short")
    )
    cluster.run(
        "failing", a_task(command="sleep 0.2; exit 3", policies=[on("PodFailed", "AbortJob")])
    )
    cluster.phase("failing", "Aborted")
    cluster.queue("closing")
    bus = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"generateName": "close-"},
        "action": "CloseQueue",
    }
    queue = cluster.api.get("/apis/scheduling.volcano.sh/v1beta1/queues/closing").tree
    target = {key: queue[key] for key in ("apiVersion", "kind")} | {
        key: queue["metadata"][key] for key in ("name", "uid")
    }
    cluster.api.create(
        "/apis/bus.volcano.sh/v1alpha1/namespaces/default/commands", {**bus, "target": target}
    )
    cluster.until(lambda: not cluster.open("closing"))
