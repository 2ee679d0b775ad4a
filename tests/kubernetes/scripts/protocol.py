"""Paths, verbs, media types, bodies, discovery, and the forms in which things are read."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.cluster.api import JSON, MERGE, PROTOBUF, TABLE, YAML
from tests.kubernetes.exchange import Step
from tests.kubernetes.samples import SAMPLES
from tests.kubernetes.scripts.places import AGGREGATED, MAPS, NS, PARTIAL, PARTIALS, PODS, config


def http() -> Iterator[Step]:
    """Paths, verbs and media types."""
    yield Step("GET", "/nothing")
    yield Step("GET", "/apis/nothing.example.com/v1/things")
    yield Step("GET", "/apis/apps/v9/deployments")
    yield Step("GET", "/apis/apps/v9")
    yield Step("GET", "/apis/apps/nothing/at/all")
    yield Step("GET", "/api/v9/pods")
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
    for accept in (
        "text/html",
        "application/cbor",
        YAML,
        f"text/html, {JSON}",
        "*/*",
        "application/*",
        "application/json;as=Nothing;v=v1;g=x",
    ):
        yield Step("GET", f"{NS}/serviceaccounts", accept=accept)
    yield Step("GET", f"{MAPS}/absent", accept=YAML)
    yield Step("GET", f"{MAPS}/absent", accept=PROTOBUF)
    yield Step("GET", f"{MAPS}/absent", accept="text/html")
    yield Step(
        "GET", MAPS, query={"watch": "maybe", "limit": "x", "timeoutSeconds": "-", "unknown": "1"}
    )
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
    yield Step(
        "GET",
        MAPS,
        query={"watch": "1", "sendInitialEvents": "true", "timeoutSeconds": "1"},
        watch=True,
    )
    yield Step(
        "GET",
        MAPS,
        query={
            "watch": "1",
            "resourceVersionMatch": "Exact",
            "resourceVersion": "1",
            "timeoutSeconds": "1",
        },
        watch=True,
    )


def bodies() -> Iterator[Step]:
    """What a server says to bodies that it cannot use."""
    good = json.dumps(config("x")).encode()
    yield Step("POST", MAPS, b"", JSON)
    yield Step("POST", MAPS, b"{", JSON)
    yield Step("POST", MAPS, b"nonsense", JSON)
    yield Step("POST", MAPS, b"[]", JSON)
    for text in (
        b"[1,",
        b"[1 2]",
        b'{"a":tru}',
        b'{"a":1.}',
        b'{"a":-}',
        b'{"a":"\\x"}',
        b'{"a":"\x01"}',
        b'{"a" 1}',
        b'{"a":1 "b"}',
        b"{a:1}",
        b"{} {}",
        b'{"a":1e}',
        b'{"a":[}',
        b"\x9e",
        b"'",
    ):
        yield Step("POST", MAPS, text, JSON)
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
    yield Step(
        "POST",
        MAPS,
        b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\n",
        YAML,
        query={"dryRun": "All"},
    )
    yield Step("POST", MAPS, b"a: b: c", YAML)
    yield Step("POST", MAPS, b"k8s\x00nonsense", PROTOBUF)
    yield Step("POST", MAPS, b"nonsense", PROTOBUF)
    for level in ("Ignore", "Warn", "Strict", "Maybe"):
        text = b'{"metadata":{"name":"x","wrong":1},"data":{"a":"1","a":"2"},"more":{"b":1}}'
        yield Step("POST", MAPS, text, JSON, query={"fieldValidation": level, "dryRun": "All"})
    yield Step(
        "POST", MAPS, b'{"Metadata":{"name":"x"},"DATA":{"a":"1"}}', JSON, query={"dryRun": "All"}
    )
    yield Step("POST", MAPS, config("x"), query={"dryRun": "Some"})
    yield Step("POST", MAPS, config("x"), query={"fieldManager": "m" * 129})
    yield Step("POST", MAPS, config("x"), query={"fieldManager": "bad\u0001"})
    yield Step("POST", MAPS, {**config("x"), "metadata": {"name": "x", "namespace": "elsewhere"}})
    yield Step("POST", MAPS, {**config("x"), "metadata": {}})
    yield Step("POST", MAPS, {**config("x"), "metadata": {"name": "x", "resourceVersion": "5"}})
    yield Step(
        "POST",
        MAPS,
        {
            **config("x"),
            "metadata": {"name": "x", "labels": {"-": "1", "a": "b c"}, "annotations": {"/": "1"}},
        },
    )
    yield Step(
        "POST",
        MAPS,
        {
            **config("x"),
            "metadata": {
                "name": "x",
                "ownerReferences": [{"name": "", "uid": ""}],
                "finalizers": ["f"],
            },
        },
    )
    yield Step("POST", MAPS, config("x" * 254))
    yield Step("POST", MAPS, config("x", data={"bad key": "1", "..": "2"}, binaryData={"a": "!!"}))
    yield Step("POST", MAPS, config("x", data={"a": "1"}, binaryData={"a": "MQ=="}))
    yield Step("POST", MAPS, config("x", data={"a": "x" * 1_100_000}))
    yield Step("POST", MAPS, config("x", data={"a": "x" * 3_200_000}))
    yield Step(
        "POST",
        MAPS,
        {
            **config("x"),
            "metadata": {"generateName": "made-", "generation": 7, "uid": "mine", "selfLink": "/x"},
        },
    )
    yield Step("POST", MAPS, {**config("x"), "metadata": {"generateName": "Bad_"}})


def discovery() -> Iterator[Step]:
    """What the servers say that they serve."""
    yield Step("GET", "/api")
    yield Step("GET", "/apis")
    yield Step("GET", "/api/v1")
    for version in dict.fromkeys(
        sample.api_version for sample in SAMPLES if "/" in sample.api_version
    ):
        yield Step("GET", f"/apis/{version}")
        yield Step("GET", f"/apis/{version.partition('/')[0]}")
    for version in (
        "apiextensions.k8s.io/v1",
        "authentication.k8s.io/v1",
        "authorization.k8s.io/v1",
        "events.k8s.io/v1",
        "autoscaling/v1",
        "apiregistration.k8s.io/v1",
    ):
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
    yield Step("GET", MAPS, accept=PARTIAL)
    yield Step(
        "GET", MAPS, accept="application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io"
    )
    yield Step("PATCH", f"{MAPS}/x", {"metadata": {"labels": {"a": "b"}}}, MERGE, accept=PARTIAL)
    yield Step("PATCH", f"{MAPS}/x", {"metadata": {"labels": {"a": "c"}}}, MERGE, accept=TABLE)
    yield Step(
        "PATCH", f"{MAPS}/x", {"metadata": {"labels": {"a": "d"}}}, MERGE, accept="text/html"
    )
    yield Step("DELETE", f"{MAPS}/x", accept=PARTIAL, query={"dryRun": "All"})
    yield Step("GET", f"{PODS}/x/log")
    yield Step("GET", f"{PODS}/x/exec")
    yield Step("GET", "/api/v1/nodes/absent/proxy")
