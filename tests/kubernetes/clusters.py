"""The two clusters that are held against each other, in the same shape: four nodes that take pods,
and a tainted one.

All nodes are fake ones of Hekla's kubelet, and Hekla's scheduler places the pods, so that what
differs is the server and its controllers.  A third one, with a node that runs containers, is for
stories that are told on Hekla's own cluster otherwise.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.api import Api, Tree
from tests.kubernetes import programs
from tests.kubernetes.reference import reference

NODES = 4
TAINTED = "fake-tainted"
READY_IN = 60.0


@contextmanager
def reference_cluster(say: programs.Say = lambda _: None) -> Iterator[Path]:
    """The kubeconfig of a reference cluster.  Raises CannotBuild, NotStarted."""
    with reference(say=say) as server:
        server.add_nodes("--nodes=0", f"--fake-nodes={NODES}")
        server.add_scheduler()
        _add_tainted_node(server.kubeconfig)
        _let_pods_linger(server.kubeconfig)
        yield server.kubeconfig


@contextmanager
def working_cluster(say: programs.Say = lambda _: None) -> Iterator[Path]:
    """The kubeconfig of a reference cluster of one node that runs containers, with everything of
    Hekla installed and at work."""
    with reference(say=say) as server:
        server.add_nodes("--nodes=1")
        server.add_scheduler()
        server.add_webhooks()
        api = Api(server.kubeconfig)
        queue = "/apis/scheduling.volcano.sh/v1beta1/queues/default"
        api.wait(queue, lambda queue: queue.get("status", {}).get("state") == "Open", READY_IN)
        api.wait("/api/v1/nodes", lambda nodes: _all_ready(nodes, 1), READY_IN)
        yield server.kubeconfig


@contextmanager
def local_cluster() -> Iterator[Path]:
    """The kubeconfig of a local cluster of Hekla's."""
    from hekla.cli.down import stop
    from hekla.cli.up import bring_up
    from hekla.local.cluster.cluster import Cluster

    directory = Path(tempfile.mkdtemp(prefix="hekla-judged-"))
    cluster = Cluster(directory / "judged")
    try:
        bring_up(cluster, {"nodes": 0, "fake_nodes": NODES}, 120, lambda *_: None)
        _add_tainted_node(cluster.kubeconfig)
        _let_pods_linger(cluster.kubeconfig)
        yield cluster.kubeconfig
    finally:
        stop(cluster)
        shutil.rmtree(directory, ignore_errors=True)


def _add_tainted_node(kubeconfig: Path) -> None:
    api = Api(kubeconfig)
    size = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    taint = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
    labels = {
        "kubernetes.io/hostname": TAINTED,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    metadata = {"name": TAINTED, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": labels}
    api.create(
        "/api/v1/nodes",
        {
            "metadata": metadata,
            "spec": {"taints": [taint]},
            "status": {"capacity": size, "allocatable": size},
        },
    )
    api.wait("/api/v1/nodes", lambda nodes: _all_ready(nodes, NODES + 1), READY_IN)


def _let_pods_linger(kubeconfig: Path) -> None:
    """One spec looks at a pod that it has deleted with a grace of a minute; fake nodes let pods go
    at once."""
    api, group = Api(kubeconfig), "/apis/admissionregistration.k8s.io/v1"
    name = {"metadata": {"name": "lingering-pods"}}
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    lingering = 'Object{metadata: Object.metadata{annotations: {"pod-delete.stage.kwok.x-k8s.io/delay": "2s"}}}'
    api.create(
        f"{group}/mutatingadmissionpolicies",
        {
            **name,
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "reinvocationPolicy": "Never",
                "failurePolicy": "Ignore",
                "matchConditions": [
                    {
                        "name": "one",
                        "expression": 'object.metadata.?name.orValue("").startsWith("pod-generation-")',
                    }
                ],
                "mutations": [
                    {
                        "patchType": "ApplyConfiguration",
                        "applyConfiguration": {"expression": lingering},
                    }
                ],
            },
        },
    )
    api.create(
        f"{group}/mutatingadmissionpolicybindings",
        {**name, "spec": {"policyName": "lingering-pods"}},
    )


def _all_ready(nodes: Tree, count: int) -> bool:
    ready = [
        node
        for node in nodes["items"]
        if any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in node.get("status", {}).get("conditions", [])
        )
    ]
    return len(ready) == count
