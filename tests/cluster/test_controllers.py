"""Checklist 114 to 125: the built-in controllers."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest

from hekla.api.text.times import stamp
from tests.cluster import objects
from tests.cluster.api import PATIENCE, STRATEGIC, Api, Tree, eventually, steadily
from tests.cluster.conftest import Kubectl, Namespace

DEPLOYMENTS, REPLICA_SETS = "apps/v1/deployments", "apps/v1/replicasets"


def on_fakes(name: str, replicas: int) -> Tree:
    return objects.deployment(name, replicas, **objects.FAKE)


def pods_of(api: Api, ns: Namespace, app: str) -> list[Tree]:
    return [
        pod
        for pod in api.get(ns.path("pods"), labelSelector=f"app={app}").tree["items"]
        if "deletionTimestamp" not in pod["metadata"]
    ]


def test_item_114_a_rollout(api: Api, ns: Namespace, fake_node: str, kubectl: Kubectl) -> None:
    api.create(ns.path(DEPLOYMENTS), on_fakes("web", 3))
    path = ns.path(DEPLOYMENTS, "web")
    ready = api.wait(
        path,
        lambda tree: (
            objects.condition(tree, "Available").get("status") == "True"
            and tree["status"].get("readyReplicas") == 3
        ),
    )
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    assert [ready["status"].get(count) for count in counts] == [3, 3, 3, 3]
    assert "successfully rolled out" in kubectl(
        "-n", ns.name, "rollout", "status", "deployment/web", "--timeout=60s"
    )
    kubectl("-n", ns.name, "set", "image", "deployment/web", "c=busybox:2")
    kubectl("-n", ns.name, "rollout", "status", "deployment/web", "--timeout=60s")
    assert api.get(path).meta["annotations"]["deployment.kubernetes.io/revision"] == "2"
    sets = {
        rs["metadata"]["annotations"]["deployment.kubernetes.io/revision"]: rs
        for rs in api.get(ns.path(REPLICA_SETS)).tree["items"]
        if rs["metadata"]["name"].startswith("web-")
    }
    assert (sets["1"]["spec"]["replicas"], sets["2"]["spec"]["replicas"]) == (0, 3)
    eventually(
        lambda: (
            {pod["spec"]["containers"][0]["image"] for pod in pods_of(api, ns, "web")}
            == {"busybox:2"}
        )
    )


def test_item_115_undo_restart_scale(
    api: Api, ns: Namespace, fake_node: str, kubectl: Kubectl
) -> None:
    api.create(ns.path(DEPLOYMENTS), on_fakes("turn", 1))
    path = ns.path(DEPLOYMENTS, "turn")

    def rolled() -> Tree:
        kubectl("-n", ns.name, "rollout", "status", "deployment/turn", "--timeout=60s")
        return api.get(path).tree["spec"]["template"]

    rolled()
    kubectl("-n", ns.name, "set", "image", "deployment/turn", "c=busybox:2")
    rolled()
    kubectl("-n", ns.name, "rollout", "undo", "deployment/turn")
    assert rolled()["spec"]["containers"][0]["image"] == "busybox"
    kubectl("-n", ns.name, "rollout", "restart", "deployment/turn")
    assert "kubectl.kubernetes.io/restartedAt" in rolled()["metadata"]["annotations"]
    kubectl("-n", ns.name, "scale", "deployment/turn", "--replicas=3")
    api.wait(path, lambda tree: tree["status"].get("readyReplicas") == 3)


def test_item_116_pods_of_a_replica_set(api: Api, ns: Namespace) -> None:
    tree = objects.deployment("kept", 2, schedulerName="nobody")
    tree.update(kind="ReplicaSet")
    api.create(ns.path(REPLICA_SETS), tree)
    first = eventually(lambda: len(found := pods_of(api, ns, "kept")) == 2 and found)
    lost, released = (pod["metadata"]["name"] for pod in first)
    api.delete(ns.path("pods", lost))
    eventually(
        lambda: (
            len(now := pods_of(api, ns, "kept")) == 2
            and lost not in [pod["metadata"]["name"] for pod in now]
        )
    )
    api.patch(ns.path("pods", released), {"metadata": {"labels": {"app": "free"}}})
    eventually(lambda: len(pods_of(api, ns, "kept")) == 2)
    api.wait(ns.path("pods", released), lambda pod: "ownerReferences" not in pod["metadata"])


STATEFUL_SETS, DAEMON_SETS, JOBS, CRON_JOBS = (
    "apps/v1/statefulsets",
    "apps/v1/daemonsets",
    "batch/v1/jobs",
    "batch/v1/cronjobs",
)


def test_item_117_stateful_sets(api: Api, ns: Namespace, fake_node: str) -> None:
    tree = on_fakes("state", 2)
    tree.update(kind="StatefulSet")
    tree["spec"]["serviceName"] = "state"
    claim = {
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }
    volume = {
        "metadata": {"name": f"{ns.name}-0"},
        "spec": {
            "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/tmp/unused"},
            "claimRef": {"namespace": ns.name, "name": "data-state-0"},
        },
    }
    other = {
        "metadata": {"name": f"{ns.name}-1"},
        "spec": {**volume["spec"], "claimRef": {"namespace": ns.name, "name": "data-state-1"}},
    }
    for each in (volume, other):
        api.create("/api/v1/persistentvolumes", each)
    tree["spec"]["volumeClaimTemplates"] = [claim]
    try:
        api.create(ns.path(STATEFUL_SETS), tree)
        eventually(
            lambda: (
                [pod["metadata"]["name"] for pod in pods_of(api, ns, "state")]
                == ["state-0", "state-1"]
            )
        )
        api.wait(
            ns.path(STATEFUL_SETS, "state"), lambda found: found["status"].get("readyReplicas") == 2
        )
        first, second = pods_of(api, ns, "state")
        assert second["metadata"]["creationTimestamp"] >= first["metadata"]["creationTimestamp"]
        assert (
            second["spec"]["hostname"] == "state-1"
            and second["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
        )
        assert api.get(ns.path("persistentvolumeclaims")).names == ["data-state-0", "data-state-1"]
        api.patch(ns.path(STATEFUL_SETS, "state"), {"spec": {"replicas": 1}})
        eventually(
            lambda: [pod["metadata"]["name"] for pod in pods_of(api, ns, "state")] == ["state-0"]
        )
        assert api.get(ns.path("persistentvolumeclaims")).names == ["data-state-0", "data-state-1"]
    finally:
        for each in (volume, other):
            api.delete(f"/api/v1/persistentvolumes/{each['metadata']['name']}")


def test_item_117_a_rollout_of_a_stateful_set(
    api: Api, ns: Namespace, fake_node: str, kubectl: Kubectl
) -> None:
    tree = on_fakes("steps", 2)
    tree.update(kind="StatefulSet")
    tree["spec"]["serviceName"] = "steps"
    api.create(ns.path(STATEFUL_SETS), tree)
    kubectl("-n", ns.name, "rollout", "status", "statefulset/steps", "--timeout=60s")
    kubectl("-n", ns.name, "set", "image", "statefulset/steps", "c=busybox:2")
    kubectl("-n", ns.name, "rollout", "status", "statefulset/steps", "--timeout=60s")
    kubectl("-n", ns.name, "rollout", "undo", "statefulset/steps")
    kubectl("-n", ns.name, "rollout", "status", "statefulset/steps", "--timeout=60s")
    assert {pod["spec"]["containers"][0]["image"] for pod in pods_of(api, ns, "steps")} == {
        "busybox"
    }
    assert kubectl("-n", ns.name, "rollout", "history", "statefulset/steps").splitlines()[2:4] == [
        "2         <none>",
        "3         <none>",
    ]


def test_item_118_daemon_sets(api: Api, ns: Namespace, fake_node: str, kubectl: Kubectl) -> None:
    tree = on_fakes("everywhere", 1)
    tree.update(kind="DaemonSet")
    tree["spec"].pop("replicas")
    pool = f"pool-{uuid.uuid4().hex[:6]}"
    tree["spec"]["template"]["spec"]["nodeSelector"] = {"pool": pool}
    names = [f"{pool}-{number}" for number in range(3)]

    def add(name: str, **spec: Any) -> None:
        node = fake(name, **spec)
        node["metadata"]["labels"]["pool"] = pool
        api.create("/api/v1/nodes", node)

    def on(*nodes: str) -> None:
        eventually(
            lambda: (
                sorted(pod["spec"].get("nodeName", "") for pod in pods_of(api, ns, "everywhere"))
                == sorted(nodes)
            )
        )

    try:
        add(names[0])
        add(names[1], taints=[{"key": "gpu", "value": "only", "effect": "NoSchedule"}])
        api.create(ns.path(DAEMON_SETS), tree)
        on(names[0])
        add(names[2])
        on(names[0], names[2])
        kubectl("-n", ns.name, "rollout", "status", "daemonset/everywhere", "--timeout=60s")
        kubectl("-n", ns.name, "set", "image", "daemonset/everywhere", "c=busybox:2")
        kubectl("-n", ns.name, "rollout", "status", "daemonset/everywhere", "--timeout=60s")
        kubectl("-n", ns.name, "rollout", "undo", "daemonset/everywhere")
        kubectl("-n", ns.name, "rollout", "status", "daemonset/everywhere", "--timeout=60s")
        assert {
            pod["spec"]["containers"][0]["image"] for pod in pods_of(api, ns, "everywhere")
        } == {"busybox"}
        api.delete(ns.path(DAEMON_SETS, "everywhere"))
        eventually(lambda: not pods_of(api, ns, "everywhere"))
    finally:
        for name in names:
            api.delete(f"/api/v1/nodes/{name}")


def batch_job(name: str, script: str, **spec: Any) -> Tree:
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [objects.container("sh", "-c", script)],
            **objects.FAKE,
        }
    }
    return {"metadata": {"name": name}, "spec": {"template": template, **spec}}


def test_item_119_jobs(api: Api, ns: Namespace, fake_node: str) -> None:
    api.create(ns.path(JOBS), batch_job("three", "exit 0", completions=3, parallelism=2))
    api.create(ns.path(JOBS), batch_job("never", "exit 1", backoffLimit=1))
    api.create(ns.path(JOBS), batch_job("brief", "exit 0", ttlSecondsAfterFinished=1))
    done = api.wait(
        ns.path(JOBS, "three"),
        lambda tree: objects.condition(tree, "Complete").get("status") == "True",
    )
    assert (
        objects.condition(done, "SuccessCriteriaMet")["status"] == "True"
        and done["status"]["succeeded"] == 3
    )
    failed = api.wait(
        ns.path(JOBS, "never"),
        lambda tree: objects.condition(tree, "Failed").get("status") == "True",
    )
    assert (
        objects.condition(failed, "Failed")["reason"] == "BackoffLimitExceeded"
        and failed["status"]["failed"] == 2
    )
    eventually(lambda: api.get(ns.path(JOBS, "brief")).status == 404)


def test_item_120_cron_jobs(api: Api, ns: Namespace, fake_node: str, kubectl: Kubectl) -> None:
    template = {"spec": batch_job("", "exit 0")["spec"]}
    cron = {
        "schedule": "* * * * *",
        "suspend": True,
        "successfulJobsHistoryLimit": 0,
        "jobTemplate": template,
    }
    made = api.create(ns.path(CRON_JOBS), {"metadata": {"name": "each"}, "spec": cron})
    ago = {"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}}
    assert api.patch(ns.path(CRON_JOBS, "each", "status"), ago).status == 200
    api.patch(
        ns.path(CRON_JOBS, "each"), {"spec": {"suspend": False, "startingDeadlineSeconds": 3600}}
    )

    def done() -> Any:
        return api.get(ns.path(CRON_JOBS, "each")).tree.get("status", {}).get("lastSuccessfulTime")

    eventually(done)
    eventually(
        lambda: not [name for name in api.get(ns.path(JOBS)).names if name.startswith("each-")]
    )
    kubectl("-n", ns.name, "create", "job", "by-hand", "--from=cronjob/each")
    by_hand = api.get(ns.path(JOBS, "by-hand"))
    assert by_hand.meta["ownerReferences"][0]["uid"] == made["metadata"]["uid"]


@pytest.mark.slow(seconds=130)
@pytest.mark.timeout(300)
def test_item_120_a_job_each_minute(api: Api, ns: Namespace, fake_node: str) -> None:
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": batch_job("", "exit 0")["spec"]}}
    api.create(ns.path(CRON_JOBS), {"metadata": {"name": "minutely"}, "spec": spec})
    eventually(
        lambda: (
            len([name for name in api.get(ns.path(JOBS)).names if name.startswith("minutely-")])
            == 2
        ),
        120 + PATIENCE,
    )
    api.delete(ns.path(CRON_JOBS, "minutely"))


def ready_endpoints(api: Api, ns: Namespace, service: str) -> list[Tree]:
    """What the slices of a Service say is ready."""
    slices = api.get(
        ns.path("discovery.k8s.io/v1/endpointslices"),
        labelSelector=f"kubernetes.io/service-name={service}",
    ).tree["items"]
    found = [endpoint for piece in slices for endpoint in piece["endpoints"] or []]
    return [endpoint for endpoint in found if endpoint["conditions"]["ready"]]


def test_item_121_endpoints_follow_readiness(api: Api, ns: Namespace) -> None:
    for name, cluster_ip in (("door", None), ("crowd", "None")):
        spec = {
            "selector": {"app": "served"},
            "ports": [{"name": "http", "port": 80, "targetPort": 8080}],
        }
        api.create(
            ns.path("services"),
            {
                "metadata": {"name": name},
                "spec": {**spec, **({"clusterIP": cluster_ip} if cluster_ip else {})},
            },
        )
    # A node that nobody looks after: the pod says of itself what the test wants, and slices leave
    # out pods of no node.
    node = f"unattended-{uuid.uuid4().hex[:6]}"
    api.create("/api/v1/nodes", {"metadata": {"name": node}})
    api.create(
        ns.path("pods"), objects.pod("served", nodeName=node, tolerations=[{"operator": "Exists"}])
    )

    def status(ready: str) -> None:
        conditions = [{"type": "Ready", "status": ready}]
        more = {
            "phase": "Running",
            "podIP": "10.1.2.3",
            "podIPs": [{"ip": "10.1.2.3"}],
            "conditions": conditions,
        }
        assert api.patch(ns.path("pods", "served", "status"), {"status": more}).status == 200

    def subsets(name: str) -> list[Tree]:
        return list(api.get(ns.path("endpoints", name)).tree.get("subsets") or [])

    status("False")
    for name in ("door", "crowd"):
        found = eventually(lambda name=name: subsets(name))  # type: ignore[misc]
        assert [address["ip"] for address in found[0]["notReadyAddresses"]] == [
            "10.1.2.3"
        ] and "addresses" not in found[0]
    status("True")
    for name in ("door", "crowd"):
        found = eventually(lambda name=name: [s for s in subsets(name) if s.get("addresses")])  # type: ignore[misc]
        assert found[0]["addresses"][0]["targetRef"]["name"] == "served"
        assert found[0]["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
        (endpoint,) = eventually(lambda name=name: ready_endpoints(api, ns, name))  # type: ignore[misc]
        assert endpoint["addresses"] == ["10.1.2.3"]
    api.delete(ns.path("pods", "served"), {"gracePeriodSeconds": 0})
    api.delete(f"/api/v1/nodes/{node}")
    eventually(lambda: not subsets("door"))


def fake(name: str, **spec: Any) -> Tree:
    """A node of which no kubelet knows."""
    labels = {"kubernetes.io/hostname": name, "type": "kwok"}
    annotations = {"kwok.x-k8s.io/node": "fake"}
    status = {
        "capacity": {"cpu": "8", "memory": "8Gi", "pods": "110"},
        "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"},
    }
    return {
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": spec,
        "status": status,
    }


def test_item_122_cordon_and_drain(
    api: Api, ns: Namespace, fake_node: str, kubectl: Kubectl
) -> None:
    name = f"drained-{uuid.uuid4().hex[:6]}"
    api.create("/api/v1/nodes", fake(name))
    path = f"/api/v1/nodes/{name}"
    try:
        api.wait(path, lambda node: objects.condition(node, "Ready").get("status") == "True")
        kubectl("cordon", name)
        assert api.get(path).tree["spec"]["unschedulable"] is True
        api.create(
            ns.path("pods"),
            objects.pod("inhabitant", nodeName=name, terminationGracePeriodSeconds=0),
        )
        kubectl("drain", name, "--force", "--ignore-daemonsets", "--timeout=60s")
        assert api.get(ns.path("pods", "inhabitant")).status == 404
        kubectl("uncordon", name)
        assert "unschedulable" not in api.get(path).tree["spec"]
    finally:
        api.delete(path)


def test_item_122_a_cordoned_node_is_tainted(api: Api, fake_node: str) -> None:
    name = f"cordoned-{uuid.uuid4().hex[:6]}"
    api.create("/api/v1/nodes", fake(name))
    path = f"/api/v1/nodes/{name}"

    def taints() -> list[str]:
        return [taint["key"] for taint in api.get(path).tree["spec"].get("taints", [])]

    try:
        api.patch(path, {"spec": {"unschedulable": True}}, STRATEGIC)
        eventually(lambda: "node.kubernetes.io/unschedulable" in taints())
        api.patch(path, {"spec": {"unschedulable": None}}, STRATEGIC)
        eventually(lambda: "node.kubernetes.io/unschedulable" not in taints())
    finally:
        api.delete(path)


@pytest.mark.slow
def test_item_123_a_silent_node(api: Api, ns: Namespace, fake_node: str) -> None:
    name = f"silent-{uuid.uuid4().hex[:6]}"
    tree = fake(name)
    del tree["metadata"]["annotations"]
    tree["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    api.create("/api/v1/nodes", tree)
    path = f"/api/v1/nodes/{name}"

    def taints() -> set[tuple[str, str]]:
        return {
            (taint["key"], taint["effect"])
            for taint in api.get(path).tree["spec"].get("taints", [])
        }

    try:
        short = {
            "key": "node.kubernetes.io/unreachable",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 1,
        }
        api.create(ns.path("pods"), objects.pod("stranded", nodeName=name, tolerations=[short]))
        api.create(ns.path("pods"), objects.pod("patient", nodeName=name))
        api.wait(path, lambda node: objects.condition(node, "Ready").get("status") == "Unknown", 90)
        unreachable = "node.kubernetes.io/unreachable"
        eventually(lambda: {(unreachable, "NoSchedule"), (unreachable, "NoExecute")} <= taints())
        going = api.wait(
            ns.path("pods", "stranded"), lambda pod: pod["metadata"].get("deletionTimestamp")
        )
        assert objects.condition(going, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
        assert "deletionTimestamp" not in api.get(ns.path("pods", "patient")).meta
        fresh = [
            {
                "type": "Ready",
                "status": "True",
                "lastHeartbeatTime": stamp(time.time()),
            }
        ]
        api.patch(f"{path}/status", {"status": {"conditions": fresh}}, STRATEGIC)
        eventually(lambda: not [key for key, _ in taints() if key == unreachable])
    finally:
        for pod in ("stranded", "patient"):
            api.delete(ns.path("pods", pod), {"gracePeriodSeconds": 0})
        api.delete(path)


def test_item_124_what_every_namespace_has(api: Api) -> None:
    name = f"fresh-{uuid.uuid4().hex[:6]}"
    ns = Namespace(api, name)
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    account, root = ns.path("serviceaccounts", "default"), ns.path("configmaps", "kube-root-ca.crt")
    for path in (account, root):
        api.wait(path, lambda _: True)
    assert "BEGIN CERTIFICATE" in api.get(root).tree["data"]["ca.crt"]
    for path in (account, root):
        uid = api.get(path).meta["uid"]
        api.delete(path)
        api.wait(path, lambda tree, uid=uid: tree["metadata"]["uid"] != uid)  # type: ignore[misc]
    api.delete(f"/api/v1/namespaces/{name}")


def events_of(api: Api, ns: Namespace, pod: str) -> list[Tree]:
    return list(
        api.get(ns.path("events"), fieldSelector=f"involvedObject.name={pod}").tree["items"]
    )


def test_item_125_default_scheduling(api: Api, ns: Namespace, fake_node: str) -> None:
    api.create(ns.path("pods"), objects.pod("nobodys"))
    api.create(
        ns.path("pods"), objects.pod("placed", schedulerName="default-scheduler", **objects.FAKE)
    )
    api.create(
        ns.path("pods"),
        objects.pod("impossible", schedulerName="default-scheduler", nodeSelector={"no": "such"}),
    )
    api.wait(ns.path("pods", "placed"), lambda pod: pod["spec"].get("nodeName"))
    scheduled = eventually(
        lambda: [event for event in events_of(api, ns, "placed") if event["reason"] == "Scheduled"]
    )
    assert scheduled[0]["message"].startswith(f"Successfully assigned {ns.name}/placed to ")
    failed = eventually(
        lambda: [
            event
            for event in events_of(api, ns, "impossible")
            if event["reason"] == "FailedScheduling"
        ]
    )
    assert failed[0]["type"] == "Warning" and " nodes are " in failed[0]["message"]
    waiting = api.wait(
        ns.path("pods", "impossible"),
        lambda pod: objects.condition(pod, "PodScheduled").get("reason") == "Unschedulable",
    )
    assert waiting["status"]["phase"] == "Pending"
    steadily(lambda: api.get(ns.path("pods", "nobodys")).tree["status"]["phase"] == "Pending", 0.5)
    assert events_of(api, ns, "nobodys") == []
