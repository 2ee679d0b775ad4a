"""Attempts of a node to reach what is another node's, as data; `test_escalation.py` walks them.

The node is n1.  To it is bound the pod `mine`, to n2 the pod `theirs`; each names a secret, a
config map, a claim and so on of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cryptography.x509.oid import NameOID

from hekla.api.trees import Json
from tests.apiserver.escalating import CORE, REQUESTS, request_for
from tests.apiserver.http import JSON_PATCH, MERGE, STRATEGIC

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SLICES, CLAIMS = (
    "/apis/resource.k8s.io/v1/resourceslices",
    "/apis/resource.k8s.io/v1/namespaces/den/resourceclaims",
)
CSI_NODES, ATTACHMENTS = (
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/volumeattachments",
)
NODES, PODS = "/api/v1/nodes", f"{CORE}/pods"
AS_NODE = {"Impersonate_User": "system:node:n1", "Impersonate_Group": "system:nodes"}
UNRELATED = "no relationship found between node 'n1' and this object"
MIRROR = "kubernetes.io/config.mirror"


class Step(NamedTuple):
    """One request of the node; in bodies `{uid of pods/mine}` stands for the object's uid."""

    method: str
    path: str
    body: Any = None
    content_type: str = "application/json"
    code: int = 403
    says: str = ""


def pod(owner: str, node: str, **spec: Any) -> Json:
    """A pod that names one of everything."""
    container = {
        "name": "c",
        "image": "i",
        "envFrom": [
            {"secretRef": {"name": f"{owner}-all"}},
            {"configMapRef": {"name": f"{owner}-all"}},
        ],
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": f"{owner}-key", "key": "k"}}}],
    }
    volumes = [
        {"name": "s", "secret": {"secretName": f"{owner}-volume"}},
        {"name": "m", "configMap": {"name": f"{owner}-volume"}},
        {
            "name": "p",
            "projected": {
                "sources": [
                    {"secret": {"name": f"{owner}-projected"}},
                    {"configMap": {"name": f"{owner}-projected"}},
                    {"serviceAccountToken": {"path": "t", "audience": "vault"}},
                    {"serviceAccountToken": {"path": "own"}},
                ]
            },
        },
        {"name": "c", "persistentVolumeClaim": {"claimName": f"{owner}-claim"}},
    ]
    return {
        "metadata": {"name": owner, "namespace": "den"},
        "spec": {
            "nodeName": node,
            "serviceAccountName": f"{owner}-account",
            "automountServiceAccountToken": False,
            "volumes": volumes,
            "imagePullSecrets": [{"name": f"{owner}-pull"}],
            "resourceClaims": [{"name": "d", "resourceClaimName": f"{owner}-devices"}],
            "containers": [container],
            **spec,
        },
    }


def furniture() -> Iterator[tuple[str, Json]]:
    """What there is, in the order in which it is made."""
    for name in ("n1", "n2"):
        yield NODES, {"metadata": {"name": name}}
        yield LEASES, {"metadata": {"name": name}, "spec": {"holderIdentity": name}}
        yield CSI_NODES, {"metadata": {"name": name}, "spec": {"drivers": []}}
        yield (
            ATTACHMENTS,
            {
                "metadata": {"name": f"on-{name}"},
                "spec": {
                    "attacher": "a",
                    "nodeName": name,
                    "source": {"persistentVolumeName": "v"},
                },
            },
        )
        yield (
            SLICES,
            {
                "metadata": {"name": f"of-{name}"},
                "spec": {
                    "driver": "d.example.com",
                    "nodeName": name,
                    "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                },
            },
        )
    yield (
        "/apis/storage.k8s.io/v1/csidrivers",
        {
            "metadata": {"name": "csi.example.com"},
            "spec": {"tokenRequests": [{"audience": "disk"}]},
        },
    )
    for owner, node in (("mine", "n1"), ("theirs", "n2")):
        yield f"{CORE}/serviceaccounts", {"metadata": {"name": f"{owner}-account"}}
        for what in ("all", "key", "volume", "projected", "pull", "disk", "controller"):
            yield f"{CORE}/secrets", {"metadata": {"name": f"{owner}-{what}"}}
            yield f"{CORE}/configmaps", {"metadata": {"name": f"{owner}-{what}"}}
        yield (
            f"{CORE}/persistentvolumeclaims",
            {
                "metadata": {"name": f"{owner}-claim"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                    "volumeName": f"{owner}-disk",
                    "storageClassName": "",
                },
            },
        )
        yield (
            "/api/v1/persistentvolumes",
            {
                "metadata": {"name": f"{owner}-disk"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": "1Gi"},
                    "storageClassName": "",
                    "claimRef": {"namespace": "den", "name": f"{owner}-claim"},
                    "csi": {
                        "driver": "csi.example.com",
                        "volumeHandle": "h",
                        "nodePublishSecretRef": {"namespace": "den", "name": f"{owner}-disk"},
                        "controllerPublishSecretRef": {
                            "namespace": "den",
                            "name": f"{owner}-controller",
                        },
                    },
                },
            },
        )
        yield CLAIMS, {"metadata": {"name": f"{owner}-devices"}, "spec": {}}
        yield PODS, pod(owner, node)


def reads() -> Iterator[Step]:
    """Of each thing its own is read, and the other's is not."""
    things = [
        *(
            (f"{CORE}/secrets", what)
            for what in ("all", "key", "volume", "projected", "pull", "disk")
        ),
        *((f"{CORE}/configmaps", what) for what in ("all", "volume", "projected")),
        (f"{CORE}/persistentvolumeclaims", "claim"),
        ("/api/v1/persistentvolumes", "disk"),
        (CLAIMS, "devices"),
        (f"{CORE}/serviceaccounts", "account"),
    ]
    for path, what in things:
        yield Step("GET", f"{path}/mine-{what}", code=200)
        yield Step("GET", f"{path}/theirs-{what}", says=UNRELATED)
        yield Step("GET", f"{path}/other-{what}", says=UNRELATED)
        yield Step("GET", path, says="cannot list")
        for method in ("PUT", "DELETE"):
            yield Step(
                method, f"{path}/mine-{what}", {} if method == "PUT" else None, says="cannot "
            )
        yield Step("POST", path, {}, says="cannot create")
    for what in ("secrets", "configmaps"):
        one = f"{CORE}/{what}?fieldSelector=metadata.name%3D"
        yield Step("GET", f"{one}mine-all", code=200)
        yield Step("GET", f"{one}theirs-all", says=UNRELATED)
        yield Step("GET", f"{one}theirs-all&watch=true", says=UNRELATED)
        yield Step("GET", f"/api/v1/{what}", says="can only read namespaced object")
        yield Step("GET", f"/api/v1/namespaces/default/{what}/mine-all", says=UNRELATED)
    yield Step("GET", f"{CORE}/secrets/mine-controller", says=UNRELATED)
    yield Step("GET", f"{PODS}/mine", code=200)
    yield Step("GET", f"{PODS}/theirs", says=UNRELATED)
    yield Step("GET", f"{PODS}?fieldSelector=spec.nodeName%3Dn1", code=200)
    for selector in (
        "",
        "?fieldSelector=spec.nodeName%3Dn2",
        "?fieldSelector=spec.nodeName!%3Dn1",
        "?fieldSelector=status.phase%3Dn1",
    ):
        yield Step(
            "GET",
            f"{PODS}{selector}",
            says="can only list/watch pods with spec.nodeName field selector",
        )
    for path, named in (
        (NODES, "n"),
        (LEASES, "n"),
        (CSI_NODES, "n"),
        (ATTACHMENTS, "on-n"),
        (SLICES, "of-n"),
    ):
        yield Step("GET", f"{path}/{named}1", code=200)
        yield Step("GET", f"{path}/{named}2")
        yield Step("GET", path)
    yield Step("GET", f"{SLICES}?fieldSelector=spec.nodeName%3Dn1", code=200)
    yield Step(
        "GET", f"{SLICES}?fieldSelector=spec.nodeName%3Dn2", says="with nodeName field selector"
    )
    yield Step(
        "DELETE", f"{SLICES}?fieldSelector=spec.nodeName%3Dn2", says="with nodeName field selector"
    )
    for path in (
        "/api/v1/namespaces",
        "/apis/apps/v1/deployments",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        f"{CORE}/events",
        "/metrics",
    ):
        yield Step("GET", path, says="cannot ")
    for what in ("exec", "attach", "portforward", "binding", "ephemeralcontainers"):
        yield Step(
            "POST" if what != "ephemeralcontainers" else "PUT",
            f"{PODS}/mine/{what}",
            {},
            says="cannot ",
        )
    for what in ("log", "proxy/"):
        yield Step("GET", f"{PODS}/mine/{what}", says="cannot get")
    yield Step("GET", f"{NODES}/n1/proxy/pods", says="cannot get")


def of_pods() -> Iterator[Step]:
    """Writes of pods: mirrors of its own files, statuses, evictions."""
    bare: Json = {
        "containers": [{"name": "c", "image": "i"}],
        "nodeName": "n1",
        "automountServiceAccountToken": False,
    }
    owner = {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": "{uid of nodes/n1}",
        "controller": True,
    }

    def mirror(
        node: str = "n1",
        owners: list[Json] | None = None,
        annotations: Json | None = None,
        **spec: Any,
    ) -> Json:
        metadata: Json = {
            "name": "mirror",
            "annotations": {MIRROR: "x"} if annotations is None else annotations,
        }
        return {
            "metadata": {**metadata, "ownerReferences": [owner] if owners is None else owners},
            "spec": {**bare, **spec, "nodeName": node},
        }

    yield Step("POST", PODS, mirror(annotations={}), says="can only create mirror pods")
    yield Step("POST", PODS, mirror("n2"), says="spec.nodeName set to itself")
    yield Step("POST", PODS, mirror(owners=[]), says="with an owner reference set to itself")
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "n1", "uid": "1"}
    yield Step("POST", PODS, mirror(owners=[owner, other]), says="with a single owner reference")
    for change, says in (
        ({"kind": "Pod"}, "with an owner reference set to itself"),
        ({"name": "n2"}, "with an owner reference set to itself"),
        ({"controller": False}, "with a controller owner reference"),
        ({"blockOwnerDeletion": True}, "blockOwnerDeletion"),
        ({"uid": "1"}, "UID mismatch"),
    ):
        yield Step("POST", PODS, mirror(owners=[{**owner, **change}]), says=says)
    for volume, what in (
        ({"secret": {"secretName": "theirs-all"}}, "secrets"),
        ({"configMap": {"name": "theirs-all"}}, "configmaps"),
        ({"persistentVolumeClaim": {"claimName": "theirs-claim"}}, "persistentvolumeclaims"),
        ({"csi": {"driver": "x"}}, "csidrivers"),
        ({"projected": {"sources": [{"secret": {"name": "theirs-all"}}]}}, "secrets"),
    ):
        yield Step(
            "POST",
            PODS,
            mirror(volumes=[{"name": "v", **volume}]),
            says=f"can not create pods that reference {what}",
        )
    yield Step(
        "POST",
        PODS,
        mirror(imagePullSecrets=[{"name": "theirs-pull"}]),
        says="can not create pods that reference secrets",
    )
    named = {"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": "theirs-all"}}]}
    yield Step(
        "POST", PODS, mirror(containers=[named]), says="can not create pods that reference secrets"
    )
    yield Step(
        "POST",
        PODS,
        mirror(initContainers=[{**named, "name": "d"}]),
        says="can not create pods that reference secrets",
    )
    yield Step("POST", PODS, mirror(serviceAccountName="theirs-account"))
    yield Step("POST", PODS, mirror(), code=201)
    yield Step("GET", f"{PODS}/mirror", code=200)
    status = {"status": {"message": "m"}}
    for content_type in (MERGE, STRATEGIC):
        yield Step(
            "PATCH",
            f"{PODS}/theirs/status",
            status,
            content_type,
            says="spec.nodeName set to itself",
        )
        yield Step("PATCH", f"{PODS}/mine/status", status, content_type, code=200)
    labels = {"metadata": {"labels": {"a": "b"}}}
    yield Step(
        "PATCH",
        f"{PODS}/mine/status",
        labels,
        MERGE,
        says="cannot update labels through pod status",
    )
    claimed = {
        "status": {"resourceClaimStatuses": [{"name": "d", "resourceClaimName": "theirs-devices"}]}
    }
    yield Step(
        "PATCH", f"{PODS}/mine/status", claimed, MERGE, says="cannot update resource claim statues"
    )
    yield Step("PATCH", f"{PODS}/mine", labels, MERGE, says="cannot patch")
    yield Step(
        "DELETE", f"{PODS}/theirs", says="can only delete pods with spec.nodeName set to itself"
    )
    yield Step("DELETE", f"{PODS}/none", code=404)
    yield Step("DELETE", f"{PODS}?fieldSelector=spec.nodeName%3Dn1", says="cannot deletecollection")
    for name, code in (("theirs", 403), ("none", 404)):
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        yield Step("POST", f"{PODS}/{name}/eviction", body, code=code)
    yield Step("DELETE", f"{PODS}/mirror?gracePeriodSeconds=0", code=200)


def of_tokens() -> Iterator[Step]:
    """Tokens are for the accounts of its pods, and say so."""
    accounts = f"{CORE}/serviceaccounts"

    def asked(pod: str = "mine", *audiences: str, **reference: Any) -> Json:
        bound = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": pod,
            "uid": f"{{uid of pods/{pod}}}",
            **reference,
        }
        return {"spec": {"boundObjectRef": bound, "audiences": list(audiences)}}

    own = f"{accounts}/mine-account/token"
    yield Step("POST", own, asked(), code=201)
    yield Step("POST", own, asked("mine", "vault"), code=201)
    yield Step("POST", own, asked("mine", "disk"), code=201)
    yield Step("POST", own, asked("mine", "elsewhere"), says="not found in pod spec volume")
    yield Step(
        "POST", own, asked("mine", "vault", "disk"), says="node may only request 0 or 1 audiences"
    )
    yield Step("POST", own, {"spec": {}}, says="node requested token not bound to a pod")
    for change in (
        {"kind": "Secret", "name": "mine-all"},
        {"kind": "Node", "name": "n1"},
        {"apiVersion": "v2"},
    ):
        yield Step(
            "POST", own, asked("mine", **change), says="node requested token not bound to a pod"
        )
    yield Step("POST", own, asked("mine", uid=""), says="without a uid")
    yield Step("POST", own, asked("mine", uid="1"), says="does not match the UID in record")
    yield Step("POST", own, asked("theirs"), says="scheduled on a different node")
    yield Step("POST", f"{accounts}/theirs-account/token", asked("theirs"), says=UNRELATED)
    yield Step("POST", f"{accounts}/theirs-account/token", asked(), says=UNRELATED)
    yield Step("POST", f"{accounts}/default/token", asked(), says=UNRELATED)


def of_itself() -> Iterator[Step]:
    """Writes of nodes and of what has a node's name."""
    own, other = f"{NODES}/n1", f"{NODES}/n2"
    yield Step(
        "POST", NODES, {"metadata": {"name": "n3"}}, says='is not allowed to modify node "n3"'
    )
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    for path in (other, f"{other}/status"):
        yield Step("PATCH", path, ready, STRATEGIC, says='is not allowed to modify node "n2"')
    yield Step("PATCH", f"{own}/status", ready, STRATEGIC, code=200)
    for label in (
        "node-restriction.kubernetes.io/a",
        "x.node-restriction.kubernetes.io/a",
        "kubernetes.io/role",
        "a.k8s.io/b",
        "node-role.kubernetes.io/control-plane",
        "topology.kubernetes.io/rack",
    ):
        for path in (own, f"{own}/status"):
            yield Step(
                "PATCH",
                path,
                {"metadata": {"labels": {label: "x"}}},
                MERGE,
                says="is not allowed to modify labels",
            )
    fine = {
        "example.com/a": "x",
        "kubernetes.io/hostname": "n1",
        "a.node.kubernetes.io/b": "x",
        "kubelet.kubernetes.io/c": "y",
    }
    yield Step("PATCH", own, {"metadata": {"labels": fine}}, MERGE, code=200)
    taints = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    yield Step("PATCH", own, taints, MERGE, says="is not allowed to modify taints")
    yield Step(
        "PATCH", own, {"spec": {"taints": None}}, MERGE, says="is not allowed to modify taints"
    )
    owned = {
        "metadata": {
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"}]
        }
    }
    yield Step("PATCH", own, owned, MERGE, says="is not allowed to modify ownerReferences")
    yield Step("DELETE", own, says="cannot delete")
    yield Step("DELETE", other, says="cannot delete")
    for path, what in ((LEASES, "node lease"), (CSI_NODES, "CSINode")):
        body: Json = {
            "metadata": {"name": "n3"},
            "spec": {"drivers": []} if path is CSI_NODES else {},
        }
        yield Step("POST", path, body, says=f"can only access {what} with the same name")
        yield Step(
            "PATCH",
            f"{path}/n2",
            {"metadata": {"labels": {"a": "b"}}},
            MERGE,
            says=f"can only access {what} with the same name",
        )
        yield Step("PATCH", f"{path}/n1", {"metadata": {"labels": {"a": "b"}}}, MERGE, code=200)
        yield Step("DELETE", f"{path}/n2", says=f"can only access {what} with the same name")
    elsewhere = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    for method, path in (
        ("GET", f"{elsewhere}/n1"),
        ("POST", elsewhere),
        ("DELETE", f"{elsewhere}/n1"),
    ):
        yield Step(
            method,
            path,
            {"metadata": {"name": "n1"}} if method == "POST" else None,
            says="can only access leases in the",
        )
    pool = {"name": "x", "generation": 1, "resourceSliceCount": 1}
    for spec in ({"nodeName": "n2"}, {"allNodes": True}):
        body = {
            "metadata": {"name": "s"},
            "spec": {"driver": "d.example.com", "pool": pool, **spec},
        }
        yield Step(
            "POST", SLICES, body, says="can only create ResourceSlice with the same NodeName"
        )
    yield Step("DELETE", f"{SLICES}/of-n2", says=UNRELATED)
    claim = f"{CORE}/persistentvolumeclaims/mine-claim/status"
    yield Step("PATCH", claim, {"status": {"capacity": {"storage": "1Gi"}}}, MERGE, code=200)
    yield Step(
        "PATCH",
        claim,
        {"status": {"phase": "Lost"}},
        MERGE,
        says="is not allowed to update fields other than",
    )
    yield Step(
        "PATCH",
        claim,
        {"metadata": {"labels": {"a": "b"}}},
        MERGE,
        says="is not allowed to update fields other than",
    )
    theirs = f"{CORE}/persistentvolumeclaims/theirs-claim/status"
    yield Step("PATCH", theirs, {"status": {"capacity": {"storage": "2Gi"}}}, MERGE, says=UNRELATED)
    nodes, name = (NameOID.ORGANIZATION_NAME, "system:nodes"), NameOID.COMMON_NAME
    for signer in ("kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"):
        for subject in ("system:node:n2", "system:node:", "kubernetes-admin"):
            body = request_for(nodes, (name, subject), signer=signer)
            yield Step(
                "POST", REQUESTS, body, says="can only create a node CSR with CN=system:node:n1"
            )
        yield Step(
            "POST", REQUESTS, request_for(nodes, (name, "system:node:n1"), signer=signer), code=201
        )
    added = [
        {
            "op": "add",
            "path": "/metadata/labels",
            "value": {"node-restriction.kubernetes.io/a": "b"},
        }
    ]
    yield Step("PATCH", own, added, JSON_PATCH, says="is not allowed to modify labels")


GROUPS = (reads, of_pods, of_tokens, of_itself)
