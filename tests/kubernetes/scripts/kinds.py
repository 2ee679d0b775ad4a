"""What one does to an object of any kind, and the rules of names."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cluster.api import JSON_PATCH, MERGE, STRATEGIC, TABLE
from tests.kubernetes.exchange import Step
from tests.kubernetes.samples import Sample
from tests.kubernetes.scripts.places import MAPS, NS, PARTIAL, config


def life(sample: Sample) -> Iterator[Step]:
    """Everything that one does to an object of a kind."""
    here, name = sample.collection, "{{ns}}-x" if not sample.namespaced else "x"
    if sample.plural in ("clusterroles", "roles", "clusterrolebindings", "rolebindings"):
        name += ":y"
    one = f"{here}/{name}"
    yield Step("POST", here, sample.named(name), query={"dryRun": "All"})
    yield Step("GET", one)
    yield Step("POST", here, sample.named(name))
    yield Step("POST", here, sample.named(name))
    yield Step("GET", one)
    yield Step("GET", one, accept=TABLE)
    yield Step("GET", one, accept=PARTIAL)
    yield Step("GET", here, query={"fieldSelector": f"metadata.name={name}"})
    yield Step("GET", here, accept=TABLE, query={"fieldSelector": f"metadata.name={name}"})
    yield Step("PUT", one, sample.named(name))
    yield Step("PUT", one, sample.named("another"))
    yield Step("PATCH", one, {"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}}}, MERGE)
    yield Step("PATCH", one, {"metadata": {"labels": {"l": None, "m": "2"}}}, STRATEGIC)
    yield Step(
        "PATCH", one, [{"op": "add", "path": "/metadata/labels/j", "value": "3"}], JSON_PATCH
    )
    yield Step("PATCH", one, {"unknown": 1}, MERGE, query={"fieldValidation": "Strict"})
    yield Step("PATCH", one, {"metadata": {"labels": {"l": "not a label!"}}}, MERGE)
    yield Step(
        "GET",
        here,
        query={
            "labelSelector": "m=2,j in (3)",
            "limit": "5",
            "fieldSelector": f"metadata.name={name}",
        },
    )
    if sample.status:
        yield Step("GET", f"{one}/status")
        yield Step(
            "PATCH", f"{one}/status", {"metadata": {"annotations": {"s": "1"}}, "status": {}}, MERGE
        )
        yield Step("PUT", f"{one}/status", sample.named(name))
    else:
        yield Step("GET", f"{one}/status")
    yield Step(
        "POST",
        here,
        {**sample.named("bad_name!"), "unknown": 1},
        query={"fieldValidation": "Strict"},
    )
    yield Step(
        "POST",
        here,
        {"apiVersion": sample.api_version, "kind": sample.kind, "metadata": {"name": "empty"}},
        query={"dryRun": "All"},
    )
    yield Step("POST", here, {**sample.named("x"), "kind": "Else"})
    yield Step("POST", here, {**sample.named("x"), "apiVersion": "else/v1"})
    yield Step("DELETE", one, query={"dryRun": "All"})
    yield Step("DELETE", one, query={"gracePeriodSeconds": "0"})
    yield Step("DELETE", one, query={"gracePeriodSeconds": "0"})


def validation() -> Iterator[Step]:
    """The rules of names and the like that all kinds have."""
    for name in (
        "Upper",
        "under_score",
        "-a",
        "a-",
        "a..b",
        "a.b",
        "a/b",
        "%",
        "..",
        "1",
        "x" * 64,
        "x" * 253,
    ):
        yield Step("POST", MAPS, config(name), query={"dryRun": "All"})
        yield Step(
            "POST",
            f"{NS}/services",
            {"metadata": {"name": name}, "spec": {"ports": [{"port": 1}]}},
            query={"dryRun": "All"},
        )
        yield Step(
            "POST", "/api/v1/namespaces", {"metadata": {"name": name}}, query={"dryRun": "All"}
        )
    for key in (
        "a",
        "a/b",
        "a/b/c",
        "/b",
        "A.b/c",
        "x" * 64,
        "x" * 254 + "/a",
        "-a",
        "kubernetes.io/x",
    ):
        metadata = {
            "name": "x",
            "labels": {key: "v"},
            "annotations": {key: "v v"},
            "finalizers": [key],
        }
        yield Step("POST", MAPS, {**config("x"), "metadata": metadata}, query={"dryRun": "All"})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    yield Step("POST", f"{NS}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": claim})
    yield Step(
        "PATCH",
        f"{NS}/persistentvolumeclaims/c",
        {"spec": {"accessModes": ["ReadOnlyMany"]}},
        MERGE,
    )
    dotted = {"metadata": {"name": "a.b"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    yield Step("POST", f"{NS}/pods", dotted, query={"dryRun": "All"})
    for version in ("v1", "", "a/b/c", "apps/v1"):
        target = {"apiVersion": version, "kind": "Deployment", "name": "d"}
        scaler = {
            "metadata": {"name": "h"},
            "spec": {"maxReplicas": -1 if version == "v1" else 2, "scaleTargetRef": target},
        }
        yield Step(
            "POST",
            "/apis/autoscaling/v2/namespaces/{{ns}}/horizontalpodautoscalers",
            scaler,
            query={"dryRun": "All"},
        )
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {}}
    yield Step(
        "POST",
        "/api/v1/persistentvolumes",
        {"metadata": {"name": "v"}, "spec": volume},
        query={"dryRun": "All"},
    )
    yield Step(
        "PUT", "/apis/storage.k8s.io/v1/csinodes/x", {"metadata": {"name": "x"}, "status": [None]}
    )
    yield Step(
        "POST",
        f"{NS}/limitranges",
        {"spec": {"limits": [{"type": "Container", "max": {"spec": "1"}}]}},
        query={"dryRun": "All"},
    )
    yield Step(
        "POST",
        f"{NS}/limitranges",
        {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}},
        query={"dryRun": "All"},
    )
    slices = "/apis/discovery.k8s.io/v1/namespaces/{{ns}}/endpointslices"
    addresses = {
        "IPv4": ("100%", "::1", "127.0.0.1", "0.0.0.0", "169.254.1.1", "224.0.0.5"),
        "IPv6": ("10.0.0.1", "fe80::1"),
        "FQDN": ("a.b", "A_"),
    }
    for kind, address in ((kind, address) for kind, some in addresses.items() for address in some):
        body = {
            "metadata": {"name": "x"},
            "addressType": kind,
            "endpoints": [{"addresses": [address]}],
        }
        yield Step("POST", slices, body, query={"dryRun": "All"})
    ports = [
        {"name": "a", "port": 1},
        {"name": "a", "port": 2},
        {"name": "A", "port": 1, "protocol": "x", "appProtocol": "a b"},
    ]
    body = {
        "metadata": {"name": "x"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": []}],
        "ports": ports,
    }
    yield Step("POST", slices, body, query={"dryRun": "All"})


def namespaces() -> Iterator[Step]:
    one = "/api/v1/namespaces/{{ns}}-n"
    yield Step(
        "POST", "/api/v1/namespaces", {"metadata": {"name": "{{ns}}-n", "labels": {"a": "1"}}}
    )
    yield Step(
        "PUT",
        f"{one}/finalize",
        {"metadata": {"name": "{{ns}}-n"}, "spec": {"finalizers": ["kubernetes", "example.com/f"]}},
    )
    odd = {"metadata": {"name": "{{ns}}-n"}, "spec": {"finalizers": ["bare", "a b/c"]}}
    yield Step("PUT", f"{one}/finalize", odd, query={"dryRun": "All"})
    labelled = {"name": "{{ns}}-n", "labels": {"b": "2"}, "resourceVersion": "1"}
    yield Step(
        "PUT", f"{one}/finalize", {"metadata": labelled, "spec": {"finalizers": ["kubernetes"]}}
    )
    yield Step("PUT", "/api/v1/namespaces/absent/finalize", {"metadata": {"name": "absent"}})
    yield Step("PUT", f"{one}/finalize", {"metadata": {"name": "other"}})
    yield Step(
        "PATCH",
        f"{one}/status",
        {"status": {"conditions": [{"type": "X", "status": "True"}]}},
        MERGE,
    )
    yield Step("DELETE", one)
    yield Step("POST", f"{one}/configmaps", config("late"))
    yield Step("DELETE", one)
    yield Step("GET", one)
    yield Step(
        "GET", "/api/v1/namespaces", accept=TABLE, query={"fieldSelector": "metadata.name={{ns}}-n"}
    )
    yield Step(
        "PUT", f"{one}/finalize", {"metadata": {"name": "{{ns}}-n"}, "spec": {"finalizers": []}}
    )
    yield Step("GET", one)
    for name in ("default", "kube-system", "kube-public"):
        yield Step("DELETE", f"/api/v1/namespaces/{name}")
    yield Step("DELETE", "/api/v1/namespaces")
