"""The request scripts that were written by hand: each tells one story of the protocol to both servers."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.cluster.api import APPLY, JSON, JSON_PATCH, MERGE, PROTOBUF, STRATEGIC, TABLE, YAML, Tree
from tests.kubernetes.exchange import Script, Step
from tests.kubernetes.samples import SAMPLES, SELECTOR, TEMPLATE, Sample

PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
NS = "/api/v1/namespaces/{{ns}}"
MAPS = f"{NS}/configmaps"
PODS = f"{NS}/pods"


def scripts() -> list[Script]:
    """All of them."""
    stories = {
        "http": http(), "bodies": bodies(), "discovery": discovery(), "reading": reading(), "creating": creating(), "updating": updating(),
        "patching": patching(), "strategic": strategic(), "deleting": deleting(), "collections": collections(), "listing": listing(),
        "watching": watching(), "validation": validation(), "pods": pods(), "pod-updates": pod_updates(), "services": services(),
        "workloads": workloads(), "namespaces": namespaces(), "rbac": rbac(), "reviews": reviews(), "tokens": tokens(),
        "definitions": definitions(), "definition-mistakes": definition_mistakes(), "priorities": priorities(), "quotas": quotas(),
        "webhooks": webhooks(), "apply": applying(),
    }  # fmt: skip
    found = [Script(name, tuple(steps)) for name, steps in stories.items()]
    return [*found, *(Script(f"life of {sample.plural}", tuple(life(sample))) for sample in SAMPLES)]


def config(name: str, /, **more: object) -> Tree:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}, **more}


def pod(name: str, /, **spec: object) -> Tree:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "busybox"}], **spec}}


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
    yield Step("PATCH", one, [{"op": "add", "path": "/metadata/labels/j", "value": "3"}], JSON_PATCH)
    yield Step("PATCH", one, {"unknown": 1}, MERGE, query={"fieldValidation": "Strict"})
    yield Step("PATCH", one, {"metadata": {"labels": {"l": "not a label!"}}}, MERGE)
    yield Step("GET", here, query={"labelSelector": "m=2,j in (3)", "limit": "5", "fieldSelector": f"metadata.name={name}"})
    if sample.status:
        yield Step("GET", f"{one}/status")
        yield Step("PATCH", f"{one}/status", {"metadata": {"annotations": {"s": "1"}}, "status": {}}, MERGE)
        yield Step("PUT", f"{one}/status", sample.named(name))
    else:
        yield Step("GET", f"{one}/status")
    yield Step("POST", here, {**sample.named("bad_name!"), "unknown": 1}, query={"fieldValidation": "Strict"})
    yield Step("POST", here, {"apiVersion": sample.api_version, "kind": sample.kind, "metadata": {"name": "empty"}}, query={"dryRun": "All"})
    yield Step("POST", here, {**sample.named("x"), "kind": "Else"})
    yield Step("POST", here, {**sample.named("x"), "apiVersion": "else/v1"})
    yield Step("DELETE", one, query={"dryRun": "All"})
    yield Step("DELETE", one, query={"gracePeriodSeconds": "0"})
    yield Step("DELETE", one, query={"gracePeriodSeconds": "0"})


def http() -> Iterator[Step]:
    """Paths, verbs and media types."""
    yield Step("GET", "/nothing")
    yield Step("GET", "/apis/nothing.example.com/v1/things")
    yield Step("GET", "/apis/apps/v9/deployments")
    yield Step("GET", "/api/v1/things")
    yield Step("GET", f"{NS}/things/x")
    yield Step("GET", f"{MAPS}/absent")
    yield Step("GET", f"{MAPS}/")
    yield Step("GET", "/version/")
    yield Step("GET", "/healthz")
    yield Step("GET", "/livez")
    yield Step("GET", "/readyz/ping")
    yield Step("GET", "/healthz/nothing")
    for method in ("PUT", "PATCH", "HEAD", "OPTIONS", "BREW"):
        yield Step(method, MAPS, {} if method in ("PUT", "PATCH") else None)
    yield Step("POST", f"{MAPS}/x", config("x"))
    yield Step("POST", "/api/v1/configmaps", config("x"))
    yield Step("DELETE", "/api/v1/configmaps")
    yield Step("POST", "/version", {})
    for accept in ("text/html", "application/cbor", YAML, f"text/html, {JSON}", "*/*", "application/*", "application/json;as=Nothing;v=v1;g=x"):
        yield Step("GET", f"{NS}/serviceaccounts", accept=accept)
    yield Step("GET", f"{MAPS}/absent", accept=YAML)
    yield Step("GET", f"{MAPS}/absent", accept=PROTOBUF)
    yield Step("GET", f"{MAPS}/absent", accept="text/html")
    yield Step("GET", MAPS, query={"watch": "maybe", "limit": "x", "timeoutSeconds": "-", "unknown": "1"})
    yield Step("GET", MAPS, query={"limit": "-1"})
    yield Step("GET", MAPS, query={"resourceVersion": "abc"})
    yield Step("GET", MAPS, query={"resourceVersion": "0", "resourceVersionMatch": "Exact"})
    yield Step("GET", MAPS, query={"resourceVersionMatch": "Exact"})
    yield Step("GET", MAPS, query={"resourceVersion": "1", "resourceVersionMatch": "Maybe"})
    yield Step("GET", MAPS, query={"resourceVersion": "99999999999"})
    yield Step("GET", MAPS, query={"continue": "nonsense"})
    yield Step("GET", MAPS, query={"labelSelector": "a==b=c"})
    yield Step("GET", MAPS, query={"labelSelector": "a in b"})
    yield Step("GET", MAPS, query={"fieldSelector": "spec.x=1"})
    yield Step("GET", MAPS, query={"fieldSelector": "metadata.name"})
    yield Step("GET", MAPS, query={"sendInitialEvents": "true"})
    yield Step("GET", MAPS, query={"watch": "1", "sendInitialEvents": "true", "timeoutSeconds": "1"}, watch=True)
    yield Step("GET", MAPS, query={"watch": "1", "resourceVersionMatch": "Exact", "resourceVersion": "1", "timeoutSeconds": "1"}, watch=True)


def bodies() -> Iterator[Step]:
    """What a server says to bodies that it cannot use."""
    good = json.dumps(config("x")).encode()
    yield Step("POST", MAPS, b"", JSON)
    yield Step("POST", MAPS, b"{", JSON)
    yield Step("POST", MAPS, b"nonsense", JSON)
    yield Step("POST", MAPS, b"[]", JSON)
    yield Step("POST", MAPS, b"null", JSON)
    yield Step("POST", MAPS, b"{}", JSON)
    yield Step("POST", MAPS, b'{"metadata":{"name":"x"},"data":{"a":1}}', JSON)
    yield Step("POST", MAPS, b'{"metadata":{"name":1}}', JSON)
    yield Step("POST", MAPS, b'{"metadata":[]}', JSON)
    yield Step("POST", MAPS, b'{"metadata":{"name":"x"},"immutable":"yes"}', JSON)
    yield Step("POST", MAPS, good, "text/plain")
    yield Step("POST", MAPS, good, "application/cbor")
    yield Step("POST", MAPS, good, "none", query={"dryRun": "All"})
    yield Step("POST", MAPS, good, "application/json; charset=utf-8", query={"dryRun": "All"})
    yield Step("POST", MAPS, b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\n", YAML, query={"dryRun": "All"})
    yield Step("POST", MAPS, b"a: b: c", YAML)
    yield Step("POST", MAPS, b"k8s\x00nonsense", PROTOBUF)
    yield Step("POST", MAPS, b"nonsense", PROTOBUF)
    for level in ("Ignore", "Warn", "Strict", "Maybe"):
        text = b'{"metadata":{"name":"x","wrong":1},"data":{"a":"1","a":"2"},"more":{"b":1}}'
        yield Step("POST", MAPS, text, JSON, query={"fieldValidation": level, "dryRun": "All"})
    yield Step("POST", MAPS, b'{"Metadata":{"name":"x"},"DATA":{"a":"1"}}', JSON, query={"dryRun": "All"})
    yield Step("POST", MAPS, config("x"), query={"dryRun": "Some"})
    yield Step("POST", MAPS, config("x"), query={"fieldManager": "m" * 129})
    yield Step("POST", MAPS, config("x"), query={"fieldManager": "bad\u0001"})
    yield Step("POST", MAPS, {**config("x"), "metadata": {"name": "x", "namespace": "elsewhere"}})
    yield Step("POST", MAPS, {**config("x"), "metadata": {}})
    yield Step("POST", MAPS, {**config("x"), "metadata": {"name": "x", "resourceVersion": "5"}})
    yield Step("POST", MAPS, {**config("x"), "metadata": {"name": "x", "labels": {"-": "1", "a": "b c"}, "annotations": {"/": "1"}}})
    yield Step("POST", MAPS, {**config("x"), "metadata": {"name": "x", "ownerReferences": [{"name": "", "uid": ""}], "finalizers": ["f"]}})
    yield Step("POST", MAPS, config("x" * 254))
    yield Step("POST", MAPS, config("x", data={"bad key": "1", "..": "2"}, binaryData={"a": "!!"}))
    yield Step("POST", MAPS, config("x", data={"a": "1"}, binaryData={"a": "MQ=="}))
    yield Step("POST", MAPS, config("x", data={"a": "x" * 1_100_000}))
    yield Step("POST", MAPS, config("x", data={"a": "x" * 3_200_000}))
    yield Step("POST", MAPS, {**config("x"), "metadata": {"generateName": "made-", "generation": 7, "uid": "mine", "selfLink": "/x"}})
    yield Step("POST", MAPS, {**config("x"), "metadata": {"generateName": "Bad_"}})


def discovery() -> Iterator[Step]:
    """What the servers say that they serve."""
    yield Step("GET", "/api")
    yield Step("GET", "/apis")
    yield Step("GET", "/api/v1")
    for version in dict.fromkeys(sample.api_version for sample in SAMPLES if "/" in sample.api_version):
        yield Step("GET", f"/apis/{version}")
        yield Step("GET", f"/apis/{version.partition('/')[0]}")
    for version in ("apiextensions.k8s.io/v1", "authentication.k8s.io/v1", "authorization.k8s.io/v1", "events.k8s.io/v1", "autoscaling/v1",
                    "apiregistration.k8s.io/v1"):  # fmt: skip
        yield Step("GET", f"/apis/{version}")
    yield Step("GET", "/api", accept=AGGREGATED)
    yield Step("GET", "/apis", accept=AGGREGATED)


def reading() -> Iterator[Step]:
    yield Step("POST", MAPS, config("x"))
    yield Step("GET", f"{MAPS}/x", query={"pretty": "true"})
    yield Step("GET", f"{MAPS}/x", query={"resourceVersion": "0"})
    yield Step("GET", f"{MAPS}/x", query={"resourceVersion": "abc"})
    yield Step("GET", f"{MAPS}/x", query={"resourceVersion": "999999999"})
    yield Step("GET", f"{MAPS}/x", accept=YAML)
    yield Step("GET", f"{MAPS}/x", accept=PROTOBUF)
    yield Step("GET", f"{MAPS}/x", accept=PARTIAL)
    yield Step("GET", f"{MAPS}/x", accept=PARTIALS)
    yield Step("GET", MAPS, accept=PARTIALS)
    yield Step("GET", MAPS, accept=TABLE)
    yield Step("GET", MAPS, accept=TABLE, query={"includeObject": "None"})
    yield Step("GET", MAPS, accept=TABLE, query={"includeObject": "Object"})
    yield Step("GET", MAPS, accept=TABLE, query={"includeObject": "Maybe"})
    yield Step("GET", f"{MAPS}/absent", accept=TABLE)
    yield Step("GET", f"{MAPS}/x", accept=f"{TABLE},{JSON}")
    yield Step("GET", f"{MAPS}/x", accept="application/json;as=Table;v=v1beta1;g=meta.k8s.io")
    yield Step("GET", f"{PODS}/x/log")
    yield Step("GET", f"{PODS}/x/exec")
    yield Step("GET", "/api/v1/nodes/absent/proxy")


def creating() -> Iterator[Step]:
    yield Step("POST", MAPS, config("x"), query={"fieldManager": "me"})
    yield Step("POST", MAPS, config("x"))
    yield Step("POST", "/api/v1/namespaces/absent/configmaps", config("x"))
    yield Step("POST", MAPS, {**config("y"), "metadata": {"name": "y", "deletionTimestamp": "2025-01-01T00:00:00Z", "creationTimestamp": None}})
    yield Step("POST", MAPS, {**config("z"), "metadata": {"name": "z", "finalizers": ["example.com/f"], "labels": {}, "annotations": None}})
    yield Step("POST", f"{NS}/secrets", {"metadata": {"name": "s"}, "type": "kubernetes.io/tls", "data": {}})
    yield Step("POST", f"{NS}/secrets", {"metadata": {"name": "s"}, "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "MQ=="}})
    yield Step("POST", f"{NS}/secrets", {"metadata": {"name": "s"}, "type": "kubernetes.io/basic-auth", "data": {}})
    yield Step("POST", f"{NS}/secrets", {"metadata": {"name": "s"}, "data": {"a": "not base64"}})
    yield Step("POST", f"{NS}/secrets", {"metadata": {"name": "s"}, "immutable": True, "data": {"a": "MQ=="}})
    yield Step("PATCH", f"{NS}/secrets/s", {"data": {"a": "Mg=="}}, MERGE)
    yield Step("PATCH", f"{NS}/secrets/s", {"type": "other"}, MERGE)
    yield Step("PATCH", f"{NS}/secrets/s", {"immutable": False}, MERGE)


def updating() -> Iterator[Step]:
    one = f"{MAPS}/x"
    yield Step("PUT", one, config("x"))
    yield Step("PUT", one, {**config("x"), "metadata": {"name": "x", "uid": "11111111-1111-1111-1111-111111111111"}})
    yield Step("POST", MAPS, config("x"))
    yield Step("PUT", one, config("x"))
    yield Step("PUT", one, {**config("x"), "metadata": {"name": "x", "resourceVersion": "1"}})
    yield Step("PUT", one, {**config("x"), "metadata": {"name": "x", "resourceVersion": "abc"}})
    yield Step("PUT", one, {**config("x"), "metadata": {"name": "x", "resourceVersion": "{{rv:x}}"}, "data": {"b": "2"}})
    yield Step("PUT", one, {**config("x"), "metadata": {"name": "x", "uid": "other"}})
    yield Step("PUT", one, {**config("x"), "metadata": {"name": "y"}})
    yield Step("PUT", one, {**config("x"), "metadata": {}})
    yield Step("PUT", one, {**config("x"), "metadata": {"name": "x", "namespace": "elsewhere"}})
    yield Step("PUT", one, {**config("x"), "metadata": {"name": "x", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 5}})
    yield Step("PUT", one, config("x", immutable=True), query={"dryRun": "All"})
    yield Step("PUT", one, config("x", immutable=True))
    yield Step("PUT", one, config("x", immutable=False, data={"c": "1"}))
    yield Step("PUT", f"{MAPS}/absent", config("absent"))


def patching() -> Iterator[Step]:
    one = f"{MAPS}/x"
    yield Step("PATCH", one, {"data": {"b": "2"}}, MERGE)
    yield Step("POST", MAPS, config("x"))
    yield Step("PATCH", one, {"data": {"b": "2"}}, JSON)
    yield Step("PATCH", one, {"data": {"b": "2"}}, "application/nothing+json")
    yield Step("PATCH", one, {"data": {"b": "2", "a": None}}, MERGE)
    yield Step("PATCH", one, {"data": {"b": 2}}, MERGE)
    yield Step("PATCH", one, {"data": {"b": 2}}, STRATEGIC)
    yield Step("PATCH", one, {"data": "x"}, MERGE)
    yield Step("PATCH", one, {"metadata": {"name": "y"}}, MERGE)
    yield Step("PATCH", one, {"metadata": {"namespace": "y"}}, MERGE)
    yield Step("PATCH", one, {"metadata": {"uid": "y"}}, MERGE)
    yield Step("PATCH", one, {"metadata": {"resourceVersion": "1"}}, MERGE)
    yield Step("PATCH", one, {"kind": "Secret"}, MERGE)
    yield Step("PATCH", one, {"apiVersion": "v2"}, MERGE)
    yield Step("PATCH", one, b"{", MERGE)
    yield Step("PATCH", one, b"[]", MERGE)
    yield Step("PATCH", one, b"", MERGE)
    yield Step("PATCH", one, b"null", MERGE)
    yield Step("PATCH", one, b"{", STRATEGIC)
    yield Step("PATCH", one, b"{}", JSON_PATCH)
    yield Step("PATCH", one, b"[{}]", JSON_PATCH)
    yield Step("PATCH", one, [{"op": "test", "path": "/data/b", "value": "3"}], JSON_PATCH)
    yield Step("PATCH", one, [{"op": "test", "path": "/data/b", "value": "2"}, {"op": "copy", "from": "/data/b", "path": "/data/c"}], JSON_PATCH)
    yield Step("PATCH", one, [{"op": "remove", "path": "/data/none"}], JSON_PATCH)
    yield Step("PATCH", one, [{"op": "replace", "path": "/data/none", "value": "1"}], JSON_PATCH)
    yield Step("PATCH", one, [{"op": "add", "path": "/none/none", "value": "1"}], JSON_PATCH)
    yield Step("PATCH", one, [{"op": "move", "from": "/data/c", "path": "/data/d"}], JSON_PATCH)
    yield Step("PATCH", one, [{"op": "dance", "path": "/data/d"}], JSON_PATCH)
    yield Step("PATCH", one, [{"op": "add", "path": "data/d", "value": "1"}], JSON_PATCH)
    yield Step("PATCH", one, {"data": {"e": "1"}}, MERGE, query={"dryRun": "All"})
    yield Step("PATCH", one, {"data": {"e": "1"}}, MERGE, query={"force": "true"})
    yield Step("PATCH", one, {"data": {"e": "1"}, "wrong": 1}, MERGE, query={"fieldValidation": "Warn"})
    yield Step("PATCH", one, {"data": {"e": "1"}, "wrong": 1}, STRATEGIC, query={"fieldValidation": "Strict"})
    yield Step("PATCH", one, {}, MERGE)
    yield Step("GET", one)


def strategic() -> Iterator[Step]:
    one = f"{NS}/replicationcontrollers/x"
    containers = [{"name": "a", "image": "i", "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}]}, {"name": "b", "image": "i"}]
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers, "tolerations": [{"key": "k", "operator": "Exists"}]}}
    yield Step("POST", f"{NS}/replicationcontrollers", {"metadata": {"name": "x"}, "spec": {"template": template}})

    def patch(**spec: object) -> Step:
        return Step("PATCH", one, {"spec": {"template": {"spec": spec}}}, STRATEGIC)

    yield patch(containers=[{"name": "b", "image": "j"}, {"name": "c", "image": "k"}])
    yield patch(containers=[{"name": "a", "env": [{"name": "B", "value": "2"}], "ports": [{"containerPort": 80, "name": "http"}]}])
    yield patch(containers=[{"name": "c", "$patch": "delete"}])
    yield patch(**{"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "a", "image": "z"}]})
    yield patch(**{"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a", "image": "y"}]})
    yield patch(containers=[{"image": "nameless"}])
    yield patch(tolerations=[{"key": "l", "operator": "Exists"}])
    yield patch(volumes=[{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/"}}])
    yield patch(volumes=[{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "m"}}])
    yield patch(volumes=[{"$patch": "replace"}, {"name": "only", "emptyDir": {}}])
    yield patch(**{"$deleteFromPrimitiveList/none": ["x"]})
    yield patch(nodeSelector={"a": "1"})
    yield patch(nodeSelector={"$patch": "replace", "b": "2"})
    yield patch(nodeSelector=None)
    yield patch(**{"$patch": "maybe"})
    yield Step("PATCH", one, {"metadata": {"finalizers": ["example.com/a"]}}, STRATEGIC)
    yield Step("PATCH", one, {"metadata": {"finalizers": ["example.com/b"]}}, STRATEGIC)
    yield Step("PATCH", one, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a"]}}, STRATEGIC)
    yield Step("PATCH", one, {"spec": {"replicas": None}}, STRATEGIC)
    yield Step("GET", one)


def deleting() -> Iterator[Step]:
    held = {"name": "held", "finalizers": ["example.com/f"]}
    yield Step("POST", MAPS, config("x"))
    yield Step("DELETE", f"{MAPS}/x", {"preconditions": {"uid": "wrong"}})
    yield Step("DELETE", f"{MAPS}/x", {"preconditions": {"resourceVersion": "1"}})
    yield Step("DELETE", f"{MAPS}/x", {"propagationPolicy": "Sometimes"})
    yield Step("DELETE", f"{MAPS}/x", {"propagationPolicy": "Orphan", "orphanDependents": True})
    yield Step("DELETE", f"{MAPS}/x", {"gracePeriodSeconds": "five"})
    yield Step("DELETE", f"{MAPS}/x", {"kind": "DeleteOptions", "apiVersion": "v9"})
    yield Step("DELETE", f"{MAPS}/x", {"kind": "Something", "apiVersion": "v1"})
    yield Step("DELETE", f"{MAPS}/x", {"dryRun": ["All"]})
    yield Step("DELETE", f"{MAPS}/x", {"dryRun": ["Some"]})
    yield Step("DELETE", f"{MAPS}/x", {"preconditions": {"uid": "{{uid:x}}", "resourceVersion": "{{rv:x}}"}})
    yield Step("DELETE", f"{MAPS}/x")
    yield Step("POST", MAPS, {**config("held"), "metadata": held})
    yield Step("DELETE", f"{MAPS}/held")
    yield Step("DELETE", f"{MAPS}/held")
    yield Step("PATCH", f"{MAPS}/held", {"metadata": {"finalizers": ["example.com/f", "example.com/g"]}}, MERGE)
    yield Step("PATCH", f"{MAPS}/held", {"metadata": {"deletionTimestamp": None}}, MERGE)
    yield Step("PATCH", f"{MAPS}/held", {"data": {"still": "writable"}}, MERGE)
    yield Step("PATCH", f"{MAPS}/held", {"metadata": {"finalizers": []}}, MERGE)
    yield Step("GET", f"{MAPS}/held")
    for policy in ("Foreground", "Orphan", "Background"):
        name = policy.lower()
        yield Step("POST", MAPS, config(name))
        yield Step("DELETE", f"{MAPS}/{name}", query={"propagationPolicy": policy})
        yield Step("GET", f"{MAPS}/{name}")
    yield Step("POST", PODS, pod("p"))
    yield Step("DELETE", f"{PODS}/p", query={"gracePeriodSeconds": "-1"})
    yield Step("POST", PODS, pod("q", nodeName="absent"))
    yield Step("DELETE", f"{PODS}/q", query={"gracePeriodSeconds": "20"})
    yield Step("DELETE", f"{PODS}/q", query={"gracePeriodSeconds": "40"})
    yield Step("DELETE", f"{PODS}/q", query={"gracePeriodSeconds": "5"})
    yield Step("DELETE", f"{PODS}/q", query={"gracePeriodSeconds": "0"})


def collections() -> Iterator[Step]:
    for name in ("a", "b", "c"):
        yield Step("POST", MAPS, {**config(name), "metadata": {"name": name, "labels": {"n": name}}})
    yield Step("DELETE", MAPS, query={"labelSelector": "n=a"})
    yield Step("DELETE", MAPS, query={"fieldSelector": "metadata.name=b", "dryRun": "All"})
    yield Step("DELETE", MAPS, query={"labelSelector": "=="})
    yield Step("DELETE", MAPS, {"preconditions": {"uid": "x"}})
    yield Step("GET", MAPS, accept=PARTIALS)
    yield Step("DELETE", MAPS)
    yield Step("GET", MAPS)
    yield Step("DELETE", f"{NS}/services")


def listing() -> Iterator[Step]:
    for name in ("a", "b", "c", "d", "e"):
        yield Step("POST", MAPS, {**config(name), "metadata": {"name": name, "labels": {"n": name, "odd": str(ord(name) % 2)}}})
    yield Step("GET", MAPS, query={"limit": "2"})
    yield Step("GET", MAPS, query={"limit": "2", "continue": "{{continue}}"})
    yield Step("GET", MAPS, query={"limit": "2", "continue": "{{continue}}", "resourceVersion": "1"})
    yield Step("GET", MAPS, query={"limit": "2", "continue": "{{continue}}"})
    yield Step("GET", MAPS, query={"limit": "2", "labelSelector": "odd=1"})
    for selector in ("n=a", "n==a", "n!=a", "n in (a,b)", "n notin (a,b)", "n", "!n", "n,odd=1", "n=", " n = a ", "odd>0", "odd<1", "odd>x",
                     "n in ()", "a/b/c=1", "n=a!", ",", "n=a,"):  # fmt: skip
        yield Step("GET", MAPS, accept=PARTIALS, query={"labelSelector": selector})
    for selector in ("metadata.name=a", "metadata.name!=a", "metadata.namespace={{ns}}", "metadata.name=a,metadata.name=b", "metadata.name==a",
                     "metadata.name in (a)", "metadata.uid=1", "data.a=1", "", "="):  # fmt: skip
        yield Step("GET", MAPS, accept=PARTIALS, query={"fieldSelector": selector})
    yield Step("GET", MAPS, accept=TABLE, query={"limit": "1"})
    yield Step("GET", MAPS, accept=YAML, query={"limit": "1"})
    for kind, selector in (("pods", "status.phase=Running"), ("pods", "spec.nodeName!="), ("pods", "spec.none=1"), ("secrets", "type=Opaque"),
                           ("events", "involvedObject.name=x,reason=y"), ("replicationcontrollers", "status.replicas=0"),
                           ("services", "spec.type=ClusterIP"), ("services", "spec.clusterIP=None")):  # fmt: skip
        yield Step("GET", f"{NS}/{kind}", query={"fieldSelector": selector})
    yield Step("GET", "/apis/batch/v1/jobs", query={"fieldSelector": "status.successful=1"})
    yield Step("GET", "/api/v1/nodes", query={"fieldSelector": "spec.unschedulable=true"})
    yield Step("GET", "/api/v1/namespaces", query={"fieldSelector": "status.phase=Terminating"})


def watching() -> Iterator[Step]:
    def watch(accept: str = "", **query: str) -> Step:
        return Step("GET", MAPS, accept=accept, query={"watch": "1", "timeoutSeconds": "1", **query}, watch=True)

    yield Step("POST", MAPS, {**config("a"), "metadata": {"name": "a", "labels": {"n": "a"}}})
    yield Step("PATCH", f"{MAPS}/a", {"data": {"b": "2"}}, MERGE)
    yield Step("POST", MAPS, config("b"))
    yield Step("DELETE", f"{MAPS}/b")
    yield watch(resourceVersion="{{rv:a}}")
    yield watch()
    yield watch(resourceVersion="0", labelSelector="n=a")
    yield watch(accept=TABLE)
    yield watch(accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
    yield watch(sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true")
    yield watch(sendInitialEvents="false", resourceVersionMatch="NotOlderThan")
    yield watch(sendInitialEvents="true")
    yield watch(resourceVersion="abc")
    yield watch(resourceVersion="999999999")
    yield watch(limit="1")
    yield watch(accept=YAML)
    yield watch(fieldSelector="metadata.name=a")
    yield Step("GET", "/api/v1/watch/namespaces/{{ns}}/configmaps/a", query={"timeoutSeconds": "1"}, watch=True)
    yield Step("GET", f"{MAPS}/a", query={"watch": "1", "timeoutSeconds": "1"}, watch=True)


def validation() -> Iterator[Step]:
    """The rules of names and the like that all kinds have."""
    for name in ("Upper", "under_score", "-a", "a-", "a..b", "a.b", "a/b", "%", "..", "1", "x" * 64, "x" * 253):
        yield Step("POST", MAPS, config(name), query={"dryRun": "All"})
        yield Step("POST", f"{NS}/services", {"metadata": {"name": name}, "spec": {"ports": [{"port": 1}]}}, query={"dryRun": "All"})
        yield Step("POST", "/api/v1/namespaces", {"metadata": {"name": name}}, query={"dryRun": "All"})
    for key in ("a", "a/b", "a/b/c", "/b", "A.b/c", "x" * 64, "x" * 254 + "/a", "-a", "kubernetes.io/x"):
        metadata = {"name": "x", "labels": {key: "v"}, "annotations": {key: "v v"}, "finalizers": [key]}
        yield Step("POST", MAPS, {**config("x"), "metadata": metadata}, query={"dryRun": "All"})


def pods() -> Iterator[Step]:
    """A pod's defaults and the rules of its spec."""
    probe = {"httpGet": {"port": 80}}
    full = {
        "name": "c", "image": "a:latest", "ports": [{"containerPort": 80}], "livenessProbe": probe, "readinessProbe": {"tcpSocket": {"port": 1}},
        "startupProbe": {"grpc": {"port": 1}}, "lifecycle": {"preStop": {"httpGet": {"port": 1}}}, "resources": {"limits": {"cpu": "0.1"}},
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    }  # fmt: skip
    volumes = [
        {"name": "a", "configMap": {"name": "m"}}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "c", "downwardAPI": {"items": []}},
        {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}, {"name": "e", "emptyDir": {}},
        {"name": "f", "hostPath": {"path": "/"}}, {"name": "g"}, {"name": "h", "ephemeral": {"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}}},
    ]  # fmt: skip
    yield Step("POST", PODS, pod("defaults"))
    yield Step("POST", PODS, pod("full", containers=[full], volumes=volumes, initContainers=[{"name": "i", "image": "b@sha256:" + "0" * 64}]))
    yield Step("GET", PODS, accept=TABLE)
    mistakes: list[Tree] = [
        {"containers": []}, {"containers": [{"name": "c"}]}, {"containers": [{"image": "i"}]}, {"containers": [{"name": "C", "image": " "}]},
        {"containers": [full, full]}, {"restartPolicy": "Maybe"}, {"dnsPolicy": "x"}, {"nodeSelector": {"a b": "c d"}},
        {"tolerations": [{"operator": "Equal", "effect": "x"}, {"key": "k", "operator": "Exists", "value": "v"}, {"tolerationSeconds": 1}]},
        {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]}, {"volumes": [{"name": "v"}, {"name": "v"}]},
        {"containers": [{"name": "c", "image": "i", "volumeMounts": [{"name": "none", "mountPath": "/"}, {"name": "n", "mountPath": ""}]}]},
        {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}]},
        {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "-1", "memory": "x"}}}]},
        {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "-1", "example.com/x": "0.5", "weird": "1"}}}]},
        {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 0}, {"containerPort": 99999, "protocol": "X", "name": "UP"}]}]},
        {"containers": [{"name": "c", "image": "i", "env": [{"name": ""}, {"name": "a b"}, {"name": "A", "value": "1", "valueFrom": {}}]}]},
        {"containers": [{"name": "c", "image": "i", "imagePullPolicy": "x", "terminationMessagePolicy": "y"}]},
        {"containers": [{"name": "c", "image": "i", "livenessProbe": {}, "readinessProbe": {"tcpSocket": {"port": 0}, "periodSeconds": -1}}]},
        {"terminationGracePeriodSeconds": -1, "activeDeadlineSeconds": 0}, {"priority": 5}, {"priorityClassName": "absent"},
        {"hostNetwork": True, "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 81}]}]},
        {"serviceAccountName": "absent"}, {"hostname": "A_b", "subdomain": "x.y"}, {"schedulerName": ""}, {"nodeName": "A b"},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}},
        {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ""}]}}},
        {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "x"}]},
        {"schedulingGates": [{"name": "a"}, {"name": "a"}, {"name": "B_"}]}, {"securityContext": {"runAsUser": -1, "fsGroup": -1, "sysctls": [{"name": "x"}]}},
        {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True, "allowPrivilegeEscalation": False}}]},
        {"ephemeralContainers": [{"name": "e", "image": "i"}]}, {"overhead": {"cpu": "1"}}, {"runtimeClassName": "absent"},
        {"readinessGates": [{"conditionType": "a b"}]}, {"hostAliases": [{"ip": "x", "hostnames": ["A_"]}]}, {"os": {"name": "dos"}},
        {"imagePullSecrets": [{}]}, {"resourceClaims": [{"name": "r"}]}, {"preemptionPolicy": "x"}, {"shareProcessNamespace": True, "hostPID": True},
        {"initContainers": [{"name": "c", "image": "i"}]}, {"initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always"}]},
        {"initContainers": [{"name": "s", "image": "i", "restartPolicy": "x", "livenessProbe": probe}]},
    ]  # fmt: skip
    for number, mistake in enumerate(mistakes):
        yield Step("POST", PODS, pod(f"m{number}", **mistake), query={"dryRun": "All"})


def pod_updates() -> Iterator[Step]:
    """What may change of a pod, and its subresources."""
    one = f"{PODS}/p"
    yield Step("POST", PODS, {**pod("p", schedulingGates=[{"name": "g"}]), "metadata": {"name": "p", "labels": {"a": "1"}}})
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    yield Step("POST", f"{one}/binding", binding)
    yield Step("PATCH", one, {"spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}]}}, MERGE)
    yield Step("PATCH", one, {"spec": {"nodeSelector": {"x": "y"}}}, MERGE)
    yield Step("PATCH", one, {"spec": {"schedulingGates": None}}, MERGE)
    yield Step("PATCH", one, {"spec": {"nodeSelector": {"x": "z"}}}, MERGE)
    yield Step("PATCH", one, {"spec": {"containers": [{"name": "c", "image": "other"}]}}, STRATEGIC)
    yield Step("PATCH", one, {"spec": {"containers": [{"name": "c", "command": ["x"]}]}}, STRATEGIC)
    yield Step("PATCH", one, {"spec": {"activeDeadlineSeconds": 5}}, MERGE)
    yield Step("PATCH", one, {"spec": {"activeDeadlineSeconds": 6}}, MERGE)
    yield Step("PATCH", one, {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}, MERGE)
    yield Step("PATCH", one, {"spec": {"nodeName": "n"}}, MERGE)
    yield Step("PATCH", one, {"spec": {"terminationGracePeriodSeconds": 1}}, MERGE)
    yield Step("PATCH", one, {"status": {"phase": "Running"}}, MERGE)
    yield Step("POST", f"{one}/binding", {**binding, "target": {"kind": "Pod", "name": "n"}})
    yield Step("POST", f"{one}/binding", {**binding, "target": {}})
    yield Step("POST", f"{one}/binding", {**binding, "metadata": {"name": "q"}})
    yield Step("POST", f"{one}/binding", {**binding, "metadata": {"name": "p", "annotations": {"x": "y"}, "uid": "wrong"}})
    yield Step("POST", f"{one}/binding", binding)
    yield Step("POST", f"{one}/binding", binding)
    yield Step("POST", f"{PODS}/absent/binding", {**binding, "metadata": {"name": "absent"}})
    yield Step("GET", f"{one}/binding")
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}], "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}],
              "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}]}  # fmt: skip
    yield Step("PATCH", f"{one}/status", {"status": status, "spec": {"nodeName": "other"}, "metadata": {"labels": {"b": "2"}}}, STRATEGIC)
    yield Step("PATCH", f"{one}/status", {"status": {"conditions": [{"type": "Other", "status": "Unknown"}]}}, STRATEGIC)
    yield Step("PATCH", f"{one}/status", {"status": {"podIP": "nonsense", "podIPs": [{"ip": "nonsense"}]}}, MERGE)
    yield Step("PATCH", f"{one}/status", {"status": {"phase": "Nonsense"}}, MERGE)
    yield Step("PATCH", f"{one}/status", {"status": {"conditions": [{"type": "Ready", "status": "Nonsense"}]}}, STRATEGIC)
    yield Step("GET", PODS, accept=TABLE)
    yield Step("POST", f"{one}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "other"}})
    yield Step("POST", f"{one}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}, query={"dryRun": "All"})
    debug = {"name": "debug", "image": "busybox"}
    yield Step("PATCH", f"{one}/ephemeralcontainers", {"spec": {"ephemeralContainers": [debug]}}, STRATEGIC)
    yield Step("PATCH", f"{one}/ephemeralcontainers", {"spec": {"ephemeralContainers": None}}, MERGE)
    yield Step("PATCH", f"{one}/resize", {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}, STRATEGIC)
    yield Step("POST", f"{one}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}})
    yield Step("POST", f"{one}/eviction", {"metadata": {"name": "p"}})


def services() -> Iterator[Step]:
    where = f"{NS}/services"
    for number, spec in enumerate((
        {"ports": [{"port": 80}]}, {"ports": [{"port": 80}], "clusterIP": "None"}, {"type": "NodePort", "ports": [{"port": 80, "targetPort": "web"}]},
        {"type": "LoadBalancer", "ports": [{"port": 80}], "sessionAffinity": "ClientIP"}, {"type": "ExternalName", "externalName": "example.com"},
        {}, {"ports": []}, {"ports": [{"port": 80}, {"port": 81}]}, {"ports": [{"port": 0}]}, {"ports": [{"port": 70000, "protocol": "X"}]},
        {"ports": [{"port": 80, "name": "A"}, {"port": 80, "name": "A"}]}, {"type": "Nonsense", "ports": [{"port": 80}]},
        {"type": "ExternalName"}, {"ports": [{"port": 80}], "clusterIP": "1.2.3.4"}, {"ports": [{"port": 80}], "clusterIP": "nonsense"},
        {"ports": [{"port": 80, "nodePort": 30000}]}, {"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]},
        {"ports": [{"port": 80}], "selector": {"a b": "c"}}, {"ports": [{"port": 80}], "sessionAffinity": "x", "externalTrafficPolicy": "y"},
    )):  # fmt: skip
        yield Step("POST", where, {"metadata": {"name": f"s{number}"}, "spec": spec})
    yield Step("PATCH", f"{where}/s0", {"spec": {"clusterIP": "10.96.9.9", "clusterIPs": ["10.96.9.9"]}}, MERGE)
    yield Step("PATCH", f"{where}/s0", {"spec": {"type": "NodePort"}}, MERGE)
    yield Step("PATCH", f"{where}/s0", {"spec": {"type": "ExternalName", "externalName": "x"}}, MERGE)
    yield Step("GET", where, accept=TABLE)
    yield Step("DELETE", f"{where}/s0")


def workloads() -> Iterator[Step]:
    """Scale, selectors and the rules of templates."""
    where = "/apis/apps/v1/namespaces/{{ns}}/deployments"

    def deployment(name: str, /, **spec: object) -> Tree:
        return {"metadata": {"name": name}, "spec": {"selector": SELECTOR, "template": TEMPLATE, **spec}}

    yield Step("POST", where, deployment("d", replicas=3))
    yield Step("GET", f"{where}/d/scale")
    yield Step("PUT", f"{where}/d/scale", {"metadata": {"name": "d"}, "spec": {"replicas": 5}})
    yield Step("PATCH", f"{where}/d/scale", {"spec": {"replicas": 2}}, MERGE)
    yield Step("PATCH", f"{where}/d/scale", {"spec": {"replicas": -1}}, MERGE)
    yield Step("PATCH", f"{where}/d/scale", {"spec": {"replicas": "x"}}, MERGE)
    yield Step("GET", f"{where}/d/scale", accept=TABLE)
    yield Step("PATCH", f"{where}/d", {"spec": {"selector": {"matchLabels": {"app": "b"}}}}, MERGE)
    yield Step("PATCH", f"{where}/d", {"spec": {"paused": True, "minReadySeconds": -1}}, MERGE)
    yield Step("PATCH", f"{where}/d", {"spec": {"template": {"metadata": {"labels": {"app": "b"}}}}}, MERGE)
    yield Step("GET", where, accept=TABLE)
    for number, spec in enumerate((
        {"replicas": -1}, {"selector": {}}, {"selector": {"matchLabels": {"app": "b"}}}, {"strategy": {"type": "Nonsense"}},
        {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}},
        {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}, {"strategy": {"rollingUpdate": {"maxSurge": "x%"}}},
        {"template": {}}, {"template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}},
        {"progressDeadlineSeconds": 1, "minReadySeconds": 2}, {"revisionHistoryLimit": -1},
        {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "a", "operator": "Nonsense", "values": ["x"]}]}},
    )):  # fmt: skip
        yield Step("POST", where, deployment(f"m{number}", **spec), query={"dryRun": "All"})
    jobs = "/apis/batch/v1/namespaces/{{ns}}/jobs"
    template = {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
    for number, spec in enumerate((
        {}, {"template": TEMPLATE}, {"template": {"spec": {**TEMPLATE["spec"]}}}, {"completions": 3, "parallelism": 2, "completionMode": "Indexed"},
        {"completions": -1, "parallelism": -1, "backoffLimit": -1}, {"completionMode": "Indexed"}, {"completionMode": "x"},
        {"selector": SELECTOR}, {"manualSelector": True}, {"ttlSecondsAfterFinished": -1}, {"activeDeadlineSeconds": -1}, {"suspend": True},
        {"podFailurePolicy": {"rules": [{"action": "x"}]}}, {"backoffLimitPerIndex": 1}, {"podReplacementPolicy": "x"},
    )):  # fmt: skip
        yield Step("POST", jobs, {"metadata": {"name": f"j{number}"}, "spec": {"template": template, **spec}}, query={"dryRun": "All"})
    crons = "/apis/batch/v1/namespaces/{{ns}}/cronjobs"
    for number, spec in enumerate((
        {"schedule": "nonsense"}, {"schedule": ""}, {"schedule": "@hourly", "timeZone": "Nowhere/At"}, {"schedule": "TZ=UTC * * * * *"},
        {"schedule": "* * * * *", "concurrencyPolicy": "x"}, {"schedule": "* * * * *", "successfulJobsHistoryLimit": -1},
        {"schedule": "@every 1h"}, {"schedule": "61 * * * *"}, {"schedule": "* * * * *", "jobTemplate": {}},
    )):  # fmt: skip
        body = {"metadata": {"name": f"c{number}"}, "spec": {"jobTemplate": {"spec": {"template": template}}, **spec}}
        yield Step("POST", crons, body, query={"dryRun": "All"})


def namespaces() -> Iterator[Step]:
    one = "/api/v1/namespaces/{{ns}}-n"
    yield Step("POST", "/api/v1/namespaces", {"metadata": {"name": "{{ns}}-n", "labels": {"a": "1"}}})
    yield Step("PUT", f"{one}/finalize", {"metadata": {"name": "{{ns}}-n"}, "spec": {"finalizers": ["kubernetes", "example.com/f"]}})
    yield Step("PATCH", f"{one}/status", {"status": {"conditions": [{"type": "X", "status": "True"}]}}, MERGE)
    yield Step("DELETE", one)
    yield Step("POST", f"{one}/configmaps", config("late"))
    yield Step("DELETE", one)
    yield Step("GET", one)
    yield Step("GET", "/api/v1/namespaces", accept=TABLE, query={"fieldSelector": "metadata.name={{ns}}-n"})
    yield Step("PUT", f"{one}/finalize", {"metadata": {"name": "{{ns}}-n"}, "spec": {"finalizers": []}})
    yield Step("GET", one)
    for name in ("default", "kube-system", "kube-public"):
        yield Step("DELETE", f"/api/v1/namespaces/{name}")
    yield Step("DELETE", "/api/v1/namespaces")


def rbac() -> Iterator[Step]:
    jane = {"Impersonate-User": "jane"}
    grouped = {"Impersonate-User": "joe", "Impersonate-Group": "readers"}
    where = "/apis/rbac.authorization.k8s.io/v1/namespaces/{{ns}}"
    yield Step("GET", MAPS, headers=jane)
    yield Step("POST", MAPS, config("x"), headers=jane)
    yield Step("GET", f"{MAPS}/x", headers=jane)
    yield Step("GET", "/api/v1/nodes", headers=jane)
    yield Step("GET", f"{PODS}/x/log", headers=jane)
    yield Step("GET", "/metrics", headers=jane)
    yield Step("GET", "/version", headers=jane)
    yield Step("GET", "/apis", headers=jane)
    yield Step("POST", f"{where}/roles", {"metadata": {"name": "r"}, "rules": [
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": ["x"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}, {"apiGroups": ["rbac.authorization.k8s.io"],
         "resources": ["roles", "rolebindings"], "verbs": ["*"]}]})  # fmt: skip
    bind = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}}
    subjects = [{"kind": "User", "name": "jane"}, {"kind": "Group", "name": "readers"}]
    yield Step("POST", f"{where}/rolebindings", {"metadata": {"name": "b"}, **bind, "subjects": subjects})
    yield Step("GET", MAPS, headers=jane, until=200)
    yield Step("GET", f"{MAPS}/x", headers=jane)
    yield Step("GET", f"{MAPS}/y", headers=jane)
    yield Step("GET", MAPS, headers=grouped)
    yield Step("GET", MAPS, headers=jane, query={"watch": "1", "timeoutSeconds": "1"})
    yield Step("DELETE", MAPS, headers=jane)
    yield Step("POST", f"{where}/roles", {"metadata": {"name": "more"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}, headers=jane)
    yield Step("POST", f"{where}/rolebindings", {"metadata": {"name": "c"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
               "name": "cluster-admin"}, "subjects": subjects}, headers=jane)  # fmt: skip
    yield Step("PATCH", f"{where}/rolebindings/b", {"roleRef": {"name": "other"}}, MERGE)
    for number, rule in enumerate(({}, {"verbs": ["get"]}, {"verbs": [], "apiGroups": [""], "resources": ["pods"]}, {"verbs": ["get"], "nonResourceURLs": ["/x"]},
                                   {"verbs": ["get"], "apiGroups": [""], "resources": ["a", "b/"]})):  # fmt: skip
        yield Step("POST", f"{where}/roles", {"metadata": {"name": f"m{number}"}, "rules": [rule]}, query={"dryRun": "All"})
    for subject in ({"kind": "User"}, {"kind": "ServiceAccount", "name": "x"}, {"kind": "Nonsense", "name": "x"}, {"kind": "User", "name": "x", "namespace": "y"}):
        yield Step("POST", f"{where}/rolebindings", {"metadata": {"name": "m"}, **bind, "subjects": [subject]}, query={"dryRun": "All"})
    yield Step("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/view")
    yield Step("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin")
    yield Step("GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/cluster-admin")
    yield Step("GET", MAPS, headers={"Impersonate-Group": "x"})
    yield Step("GET", MAPS, headers={"Impersonate-User": "system:serviceaccount:{{ns}}:default"})
    yield Step("GET", MAPS, headers={"Authorization": "Bearer nonsense"})


def reviews() -> Iterator[Step]:
    authorization = "/apis/authorization.k8s.io/v1"
    attributes = {"namespace": "{{ns}}", "verb": "get", "resource": "pods"}
    yield Step("POST", f"{authorization}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": attributes}})
    yield Step("POST", f"{authorization}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": attributes}}, headers={"Impersonate-User": "jane"})
    yield Step("POST", f"{authorization}/selfsubjectaccessreviews", {"spec": {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}})
    yield Step("POST", f"{authorization}/selfsubjectaccessreviews", {"spec": {}})
    yield Step("POST", f"{authorization}/subjectaccessreviews", {"spec": {"user": "jane", "groups": ["g"], "resourceAttributes": attributes}})
    yield Step("POST", f"{authorization}/subjectaccessreviews", {"spec": {"user": "a", "groups": ["system:masters"], "resourceAttributes": attributes}})
    yield Step("POST", f"{authorization}/subjectaccessreviews", {"spec": {"resourceAttributes": attributes}})
    local = f"{authorization}/namespaces/{{{{ns}}}}/localsubjectaccessreviews"
    yield Step("POST", local, {"metadata": {"namespace": "{{ns}}"}, "spec": {"user": "jane", "resourceAttributes": attributes}})
    yield Step("POST", local, {"spec": {"user": "jane", "resourceAttributes": {**attributes, "namespace": "other"}}})
    yield Step("POST", f"{authorization}/selfsubjectrulesreviews", {"spec": {"namespace": "{{ns}}"}}, headers={"Impersonate-User": "jane"})
    yield Step("POST", f"{authorization}/selfsubjectrulesreviews", {"spec": {}})
    yield Step("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    yield Step("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "nonsense"}})
    yield Step("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {}})
    yield Step("GET", f"{authorization}/subjectaccessreviews")


def tokens() -> Iterator[Step]:
    one = f"{NS}/serviceaccounts/default/token"
    yield Step("POST", one, {"spec": {"expirationSeconds": 600}})
    yield Step("POST", one, {"spec": {"audiences": ["a", "b"], "expirationSeconds": 3600}})
    yield Step("POST", one, {})
    yield Step("POST", one, {"spec": {"expirationSeconds": 5}})
    yield Step("POST", one, {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "absent"}}})
    yield Step("POST", one, {"spec": {"boundObjectRef": {"kind": "Nonsense", "apiVersion": "v1", "name": "x"}}})
    yield Step("POST", f"{NS}/serviceaccounts/absent/token", {"spec": {}})
    yield Step("GET", one)


def definition(plural: str, schema: Tree, **version: object) -> Tree:
    served = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    kind = plural.capitalize()[:-1]
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{{{{ns}}}}.example.com"},
            "spec": {"group": "{{ns}}.example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind, "shortNames": [plural[:2]]},
                     "versions": [served]}}  # fmt: skip


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definitions() -> Iterator[Step]:
    """A definition, and custom resources that keep to it or do not."""
    properties: Tree = {
        "size": {"type": "integer", "minimum": 1, "maximum": 9}, "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "name": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"}, "when": {"type": "string", "format": "date-time"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}, "either": {"x-kubernetes-int-or-string": True},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "x-kubernetes-list-type": "set"},
        "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                  "items": {"type": "object", "required": ["port"], "properties": {"port": {"type": "integer"}, "name": {"type": "string"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "number"}}, "maybe": {"type": "string", "nullable": True},
        "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "boolean", "default": True}}},
    }  # fmt: skip
    schema = {"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": properties}, "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}, {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]
    body = definition("toys", schema, subresources={"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.n"}},
                      additionalPrinterColumns=columns)  # fmt: skip
    where = "/apis/{{ns}}.example.com/v1/namespaces/{{ns}}/toys"
    yield Step("POST", DEFINITIONS, body)
    yield Step("GET", where, until=200)
    yield Step("GET", f"{DEFINITIONS}/toys.{{{{ns}}}}.example.com")
    yield Step("GET", f"{DEFINITIONS}/toys.{{{{ns}}}}.example.com", accept=TABLE)
    yield Step("GET", "/apis/{{ns}}.example.com", until=200)
    yield Step("GET", "/apis/{{ns}}.example.com/v1")

    def toy(name: str, /, **spec: object) -> Tree:
        return {"apiVersion": "{{ns}}.example.com/v1", "kind": "Toy", "metadata": {"name": name}, "spec": {"size": 1, **spec}}

    yield Step("POST", where, toy("a", free={"x": [1, {"y": None}]}, unknown=1, either="5%"))
    yield Step("POST", where, toy("b", unknown=1), query={"fieldValidation": "Strict"})
    yield Step("POST", where, toy("b", unknown=1), query={"fieldValidation": "Warn", "dryRun": "All"})
    yield Step("POST", where, {**toy("b"), "apiVersion": "else/v1"})
    yield Step("POST", where, {"metadata": {"name": "b"}, "spec": {"size": 1}})
    yield Step("POST", where, {**toy("b"), "spec": None})
    yield Step("POST", where, {key: value for key, value in toy("b").items() if key != "spec"})
    for number, spec in enumerate((
        {"size": 0}, {"size": 10}, {"size": "x"}, {"size": 1.5}, {"size": None}, {"color": "green"}, {"name": "x"}, {"name": "toolong"}, {"name": "A1"},
        {"when": "never"}, {"either": True}, {"tags": ["a", "a"]}, {"tags": ["a", "b", "c"]}, {"tags": "x"}, {"ports": [{"port": 1}, {"port": 1}]},
        {"ports": [{"name": "x"}]}, {"map": {"a": "x"}}, {"map": {"a": 1.5}}, {"maybe": None}, {"nested": {}}, {"nested": {"deep": None}}, {"color": None},
        {"size": 0, "color": "green", "name": "A"},
    )):  # fmt: skip
        yield Step("POST", where, toy(f"m{number}", **spec), query={"dryRun": "All"})
    one = f"{where}/a"
    yield Step("PUT", one, {**toy("a", size=2), "metadata": {"name": "a"}})
    yield Step("PUT", one, {**toy("a", size=2), "metadata": {"name": "a", "resourceVersion": "{{rv:a}}"}, "status": {"ready": True}})
    yield Step("PATCH", one, {"spec": {"size": 3}}, MERGE)
    yield Step("PATCH", one, {"spec": {"size": 3}}, STRATEGIC)
    yield Step("PATCH", one, [{"op": "replace", "path": "/spec/size", "value": 4}], JSON_PATCH)
    yield Step("PATCH", f"{one}/status", {"spec": {"size": 9}, "status": {"ready": True, "n": 3}}, MERGE)
    yield Step("PATCH", f"{one}/status", {"status": {"ready": "x"}}, MERGE)
    yield Step("GET", f"{one}/scale")
    yield Step("PATCH", f"{one}/scale", {"spec": {"replicas": 5}}, MERGE)
    yield Step("GET", where)
    yield Step("GET", where, accept=TABLE)
    yield Step("GET", where, accept=PARTIALS)
    yield Step("GET", where, accept=PROTOBUF)
    yield Step("GET", where, query={"fieldSelector": "spec.size=1"})
    yield Step("GET", where, query={"watch": "1", "timeoutSeconds": "1"}, watch=True)
    yield Step("DELETE", one)
    yield Step("DELETE", f"{DEFINITIONS}/toys.{{{{ns}}}}.example.com")
    yield Step("GET", where, until=404)


def definition_mistakes() -> Iterator[Step]:
    plain: Tree = {"type": "object"}

    def wrong(**spec: object) -> Tree:
        body = definition("mists", plain)
        return {**body, "spec": {**body["spec"], **spec}}

    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": plain}}
    specs: list[Tree] = [
        {"group": ""}, {"scope": "x"}, {"names": {}}, {"names": {"plural": "others", "kind": "Other"}}, {"versions": []},
        {"versions": [version, version]}, {"versions": [{**version, "storage": False}]}, {"versions": [{**version, "schema": None}]},
        {"versions": [{**version, "name": "V1"}]}, {"conversion": {"strategy": "Webhook"}}, {"preserveUnknownFields": True},
        {"names": {"plural": "mists", "kind": "lower case"}}, {"group": "nodots"}, {"versions": [{**version, "deprecated": True, "deprecationWarning": "old"}]},
    ]  # fmt: skip
    schemas: list[Tree] = [
        {}, {"type": "string"}, {"type": "object", "properties": {"a": {}}}, {"type": "object", "properties": {"a": {"type": "nonsense"}}},
        {"type": "object", "properties": {"a": {"type": "array"}}}, {"type": "object", "properties": {"a": {"type": "string", "default": 1}}},
        {"type": "object", "additionalProperties": {"type": "string"}, "properties": {"a": {"type": "string"}}},
        {"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}},
        {"type": "object", "x-kubernetes-validations": [{"rule": "self.x =="}]}, {"type": "object", "x-kubernetes-validations": [{"rule": ""}]},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}, {"type": "object", "x-kubernetes-list-type": "map"},
        {"type": "object", "$ref": "x"}, {"type": "object", "uniqueItems": True}, {"type": "object", "anyOf": [{"type": "object"}]},
        {"type": "object", "properties": {"a": {"type": "object", "x-kubernetes-embedded-resource": True}}},
        {"type": "object", "nullable": True}, {"type": "object", "properties": {"a": {"type": "integer", "format": "odd", "minimum": 5, "maximum": 1}}},
    ]  # fmt: skip
    for spec in specs:
        yield Step("POST", DEFINITIONS, wrong(**spec), query={"dryRun": "All"})
    for schema in schemas:
        yield Step("POST", DEFINITIONS, definition("mists", schema), query={"dryRun": "All"})
    yield Step("POST", DEFINITIONS, {**definition("mists", plain), "metadata": {"name": "wrong.example.com"}}, query={"dryRun": "All"})
    yield Step("POST", DEFINITIONS, wrong(group="x.k8s.io"), query={"dryRun": "All"})


def priorities() -> Iterator[Step]:
    where = "/apis/scheduling.k8s.io/v1/priorityclasses"
    yield Step("GET", where, accept=TABLE)
    yield Step("POST", where, {"metadata": {"name": "{{ns}}-p"}, "value": 7, "preemptionPolicy": "Never", "description": "d"})
    yield Step("PATCH", f"{where}/{{{{ns}}}}-p", {"value": 8}, MERGE)
    yield Step("PATCH", f"{where}/{{{{ns}}}}-p", {"preemptionPolicy": "x"}, MERGE)
    yield Step("POST", where, {"metadata": {"name": "system-x"}, "value": 1})
    yield Step("POST", where, {"metadata": {"name": "x"}, "value": 1000000001})
    yield Step("POST", PODS, pod("p", priorityClassName="{{ns}}-p"))
    yield Step("POST", PODS, pod("q", priorityClassName="{{ns}}-p", priority=5))
    yield Step("POST", PODS, pod("r", priorityClassName="system-node-critical"))
    yield Step("DELETE", f"{where}/{{{{ns}}}}-p")
    yield Step("DELETE", f"{where}/system-node-critical", query={"dryRun": "All"})


def quotas() -> Iterator[Step]:
    where = f"{NS}/resourcequotas"
    for number, spec in enumerate(({"hard": {"pods": "x"}}, {"hard": {"pods": "1.5"}}, {"hard": {"nonsense": "1"}}, {"hard": {"pods": "-1"}},
                                   {"hard": {"pods": "1"}, "scopes": ["x"]}, {"hard": {"services": "1"}, "scopes": ["Terminating"]},
                                   {"hard": {"count/x.example.com": "1"}}, {})):  # fmt: skip
        yield Step("POST", where, {"metadata": {"name": f"q{number}"}, "spec": spec}, query={"dryRun": "All"})
    limits = f"{NS}/limitranges"
    for number, limit in enumerate(({"type": "Container", "default": {"cpu": "1"}}, {"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}},
                                    {"type": "Pod", "default": {"cpu": "1"}}, {"type": "Nonsense", "max": {"cpu": "1"}}, {"max": {"cpu": "x"}},
                                    {"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "2"}, "defaultRequest": {"cpu": "3"}})):  # fmt: skip
        yield Step("POST", limits, {"metadata": {"name": f"l{number}"}, "spec": {"limits": [limit]}}, query={"dryRun": "All"})


def webhooks() -> Iterator[Step]:
    where = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    hook: Tree = {"name": "h.example.com", "clientConfig": {"url": "https://127.0.0.1:1/x"}, "sideEffects": "None", "admissionReviewVersions": ["v1"],
                  "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["none"]}]}  # fmt: skip
    yield Step("POST", where, {"metadata": {"name": "{{ns}}"}, "webhooks": [hook]})
    changes: list[Tree] = [
        {"name": "short"}, {"clientConfig": {}}, {"clientConfig": {"url": "http://x"}}, {"clientConfig": {"url": "https://x?y"}}, {"sideEffects": "Some"},
        {"sideEffects": None}, {"admissionReviewVersions": []}, {"admissionReviewVersions": ["v9"]}, {"failurePolicy": "x"}, {"timeoutSeconds": 31},
        {"timeoutSeconds": 0}, {"rules": [{"operations": ["x"]}]}, {"matchPolicy": "x"}, {"matchConditions": [{"name": "c", "expression": "object.x =="}]},
        {"matchConditions": [{"name": "a b", "expression": ""}]}, {"clientConfig": {"service": {"name": "s"}}}, {"namespaceSelector": {"matchExpressions": [{}]}},
    ]  # fmt: skip
    for number, change in enumerate(changes):
        yield Step("POST", where, {"metadata": {"name": f"m{number}"}, "webhooks": [{**hook, **change}]}, query={"dryRun": "All"})
    yield Step("DELETE", f"{where}/{{{{ns}}}}")


def applying() -> Iterator[Step]:
    """Server-side apply, with its owners and conflicts."""
    one = f"{MAPS}/x"

    def apply(manager: str, data: Tree, **query: str) -> Step:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data}
        return Step("PATCH", one, body, APPLY, query={"fieldManager": manager, **query})

    yield apply("a", {"k": "1", "l": "1"})
    yield apply("a", {"k": "1", "l": "1"})
    yield apply("b", {"k": "2"})
    yield apply("b", {"k": "1"})
    yield apply("b", {"k": "2", "m": "1"}, force="true")
    yield apply("a", {"l": "1"})
    yield apply("a", {})
    yield Step("PATCH", one, {"data": {"n": "1"}}, MERGE, query={"fieldManager": "c"})
    yield apply("a", {"n": "2"})
    yield apply("a", {"n": "2"}, dryRun="All", force="1")
    yield Step("GET", one)
    yield Step("PATCH", one, {"apiVersion": "v1", "kind": "ConfigMap", "data": {}}, APPLY)
    yield Step("PATCH", one, {"kind": "ConfigMap"}, APPLY, query={"fieldManager": "a"})
    yield Step("PATCH", one, b"a: b: c", APPLY, query={"fieldManager": "a"})
    yield Step("PATCH", one, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "managedFields": [{}]}}, APPLY, query={"fieldManager": "a"})
    yield Step("PATCH", one, {"metadata": {"managedFields": [{}]}}, MERGE)
    where = "/apis/apps/v1/namespaces/{{ns}}/deployments/d"
    base: Tree = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": SELECTOR, "template": TEMPLATE}}
    yield Step("PATCH", where, base, APPLY, query={"fieldManager": "a"})
    other = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "d", "image": "i"}]}}
    yield Step("PATCH", where, {**base, "spec": {"template": other}}, APPLY, query={"fieldManager": "b"})
    yield Step("PATCH", where, {**base, "spec": {"replicas": 3}}, APPLY, query={"fieldManager": "b"})
    yield Step("PATCH", where, {**base, "spec": {"selector": SELECTOR, "template": TEMPLATE}}, APPLY, query={"fieldManager": "a"})
    yield Step("PATCH", where, {**base, "wrong": 1}, APPLY, query={"fieldManager": "a"})
    yield Step("GET", where)
