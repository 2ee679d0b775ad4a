"""Lists, selectors, pages, watches."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cluster.api import MERGE, TABLE, YAML
from tests.kubernetes.exchange import Step
from tests.kubernetes.scripts.places import MAPS, NS, PARTIALS, config


def listing() -> Iterator[Step]:
    for name in ("a", "b", "c", "d", "e"):
        yield Step(
            "POST",
            MAPS,
            {
                **config(name),
                "metadata": {"name": name, "labels": {"n": name, "odd": str(ord(name) % 2)}},
            },
        )
    yield Step("GET", MAPS, query={"limit": "2"})
    yield Step("GET", MAPS, query={"limit": "2", "continue": "{{continue}}"})
    yield Step(
        "GET", MAPS, query={"limit": "2", "continue": "{{continue}}", "resourceVersion": "1"}
    )
    yield Step("GET", MAPS, query={"limit": "2", "continue": "{{continue}}"})
    yield Step("GET", MAPS, query={"limit": "2", "labelSelector": "odd=1"})
    for selector in (
        "n=a",
        "n==a",
        "n!=a",
        "n in (a,b)",
        "n notin (a,b)",
        "n",
        "!n",
        "n,odd=1",
        "n=",
        " n = a ",
        "odd>0",
        "odd<1",
        "odd>x",
        "n in ()",
        "a/b/c=1",
        "n=a!",
        ",",
        "n=a,",
    ):
        yield Step("GET", MAPS, accept=PARTIALS, query={"labelSelector": selector})
    for selector in (
        "metadata.name=a",
        "metadata.name!=a",
        "metadata.namespace={{ns}}",
        "metadata.name=a,metadata.name=b",
        "metadata.name==a",
        "metadata.name in (a)",
        "metadata.uid=1",
        "data.a=1",
        "",
        "=",
    ):
        yield Step("GET", MAPS, accept=PARTIALS, query={"fieldSelector": selector})
    yield Step("GET", MAPS, accept=TABLE, query={"limit": "1"})
    yield Step("GET", MAPS, accept=YAML, query={"limit": "1"})
    for kind, selector in (
        ("pods", "status.phase=Running"),
        ("pods", "spec.nodeName!="),
        ("pods", "spec.none=1"),
        ("secrets", "type=Opaque"),
        ("events", "involvedObject.name=x,reason=y"),
        ("replicationcontrollers", "status.replicas=0"),
        ("services", "spec.type=ClusterIP"),
        ("services", "spec.clusterIP=None"),
    ):
        yield Step("GET", f"{NS}/{kind}", query={"fieldSelector": selector})
    yield Step("GET", "/apis/batch/v1/jobs", query={"fieldSelector": "status.successful=1"})
    yield Step("GET", "/api/v1/nodes", query={"fieldSelector": "spec.unschedulable=true"})
    yield Step("GET", "/api/v1/namespaces", query={"fieldSelector": "status.phase=Terminating"})


def watching() -> Iterator[Step]:
    def watch(accept: str = "", **query: str) -> Step:
        return Step(
            "GET",
            MAPS,
            accept=accept,
            query={"watch": "1", "timeoutSeconds": "1", **query},
            watch=True,
        )

    yield Step("POST", MAPS, {**config("a"), "metadata": {"name": "a", "labels": {"n": "a"}}})
    yield Step("PATCH", f"{MAPS}/a", {"data": {"b": "2"}}, MERGE)
    yield Step("POST", MAPS, config("b"))
    yield Step("DELETE", f"{MAPS}/b")
    yield watch(resourceVersion="{{rv:a}}")
    yield watch()
    yield watch(resourceVersion="0", labelSelector="n=a")
    yield watch(accept=TABLE)
    yield watch(accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
    yield watch(
        sendInitialEvents="true", resourceVersionMatch="NotOlderThan", allowWatchBookmarks="true"
    )
    yield watch(sendInitialEvents="false", resourceVersionMatch="NotOlderThan")
    yield watch(sendInitialEvents="true")
    yield watch(resourceVersion="abc")
    yield watch(resourceVersion="999999999")
    yield watch(limit="1")
    yield watch(accept=YAML)
    yield watch(fieldSelector="metadata.name=a")
    yield Step(
        "GET",
        "/api/v1/watch/namespaces/{{ns}}/configmaps/a",
        query={"timeoutSeconds": "1"},
        watch=True,
    )
    yield Step("GET", f"{MAPS}/a", query={"watch": "1", "timeoutSeconds": "1"}, watch=True)
