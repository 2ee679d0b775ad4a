"""Quotas and limit ranges: what a namespace may hold, and what it fills in (local-cluster 5.4)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.apiserver.http import Http, pod

NAMESPACES = "/api/v1/namespaces"
MADE: list[str] = []


@pytest.fixture
def ns(http: Http) -> Iterator[str]:
    """A namespace of the test's own, as a path."""
    MADE.append(f"quota{len(MADE)}")
    assert http.post(NAMESPACES, {"metadata": {"name": MADE[-1]}}).status == 201
    yield f"{NAMESPACES}/{MADE[-1]}"


def quota(http: Http, ns: str, hard: dict[str, str], **spec: Any) -> None:
    assert (
        http.post(
            f"{ns}/resourcequotas", {"metadata": {"name": "rq"}, "spec": {"hard": hard, **spec}}
        ).status
        == 201
    )


def used(http: Http, ns: str, **wanted: str) -> None:
    """Waits until the status says so, which is soon."""
    deadline = time.monotonic() + 60
    found: dict[str, str] = {}
    while time.monotonic() < deadline:
        found = http.get(f"{ns}/resourcequotas/rq").tree.get("status", {}).get("used", {})
        if {key.replace("_", "."): value for key, value in wanted.items()}.items() <= found.items():
            return
        time.sleep(0.01)
    raise AssertionError(found)


def asking(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "busybox:1",
        "resources": {"requests": {"cpu": cpu}} if cpu else {},
    }
    return pod(name, **{"containers": [container], **spec})


def test_the_last_unit_of_a_quota_is_given_once(http: Http, ns: str) -> None:
    quota(http, ns, {"pods": "3"})

    def make(number: int) -> int:
        return Http(http.server).post(f"{ns}/pods", pod(f"p{number}")).status

    with ThreadPoolExecutor(8) as crowd:
        assert sorted(crowd.map(make, range(12))) == [201] * 3 + [403] * 9
    used(http, ns, pods="3")
    http.delete(f"{ns}/pods/{http.get(f'{ns}/pods').names[0]}")
    used(http, ns, pods="2")
    assert make(99) == 201


def test_what_is_refused_says_why(http: Http, ns: str) -> None:
    quota(http, ns, {"requests.cpu": "1", "pods": "10"})
    assert http.post(f"{ns}/pods", asking("a", "600m")).status == 201
    assert http.post(f"{ns}/pods", asking("b", "600m")).message == (
        'pods "b" is forbidden: exceeded quota: rq, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1'
    )
    assert (
        http.post(f"{ns}/pods", asking("c", "")).message
        == 'pods "c" is forbidden: failed quota: rq: must specify requests.cpu for: c'
    )
    assert http.post(f"{ns}/pods?dryRun=All", asking("d", "400m")).status == 201
    used(http, ns, pods="1", requests_cpu="600m")


def test_a_pod_that_has_ended_gives_back_what_it_asked_for(http: Http, ns: str) -> None:
    quota(http, ns, {"pods": "1", "count/pods": "5"})
    assert http.post(f"{ns}/pods", pod("a")).status == 201
    used(http, ns, pods="1")
    http.patch(f"{ns}/pods/a/status", {"status": {"phase": "Succeeded"}})
    used(http, ns, pods="0")
    assert http.get(f"{ns}/resourcequotas/rq").tree["status"]["used"]["count/pods"] == "1"
    assert http.post(f"{ns}/pods", pod("b")).status == 201


def test_scopes_choose_the_pods(http: Http, ns: str) -> None:
    quota(http, ns, {"pods": "1"}, scopes=["BestEffort"])
    assert http.post(f"{ns}/pods", asking("some", "1m")).status == 201
    assert http.post(f"{ns}/pods", pod("best")).status == 201
    assert http.post(f"{ns}/pods", pod("best2")).status == 403
    assert http.post(f"{ns}/pods", asking("more", "1m")).status == 201
    used(http, ns, pods="1")


def test_a_priority_class_has_a_quota_of_its_own(http: Http, ns: str) -> None:
    term = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}
    quota(http, ns, {"pods": "0"}, scopeSelector={"matchExpressions": [term]})
    assert http.post(f"{ns}/pods", pod("plain")).status == 201
    assert (
        http.post(f"{ns}/pods", pod("vital", priorityClassName="system-node-critical")).status
        == 403
    )


def test_objects_are_counted_by_their_resource(http: Http, ns: str) -> None:
    quota(
        http,
        ns,
        {
            "count/configmaps": "1",
            "configmaps": "1",
            "resourcequotas": "1",
            "count/deployments.apps": "0",
            "secrets": "1",
        },
    )
    used(http, ns, configmaps="0", resourcequotas="1")
    assert http.post(f"{ns}/configmaps", {"metadata": {"name": "a"}}).status == 201
    refused = http.post(f"{ns}/configmaps", {"metadata": {"name": "b"}})
    assert (
        "requested: configmaps=1,count/configmaps=1, used: configmaps=1,count/configmaps=1"
        in refused.message
    )
    second = http.post(
        f"{ns}/resourcequotas", {"metadata": {"name": "two"}, "spec": {"hard": {"pods": "1"}}}
    )
    assert second.status == 403
    used(http, ns, configmaps="1")


def test_services_and_claims_by_what_they_are(http: Http, ns: str) -> None:
    fast = "fast.storageclass.storage.k8s.io/requests.storage"
    quota(
        http,
        ns,
        {
            "services.nodeports": "1",
            "services.loadbalancers": "1",
            "requests.storage": "3Gi",
            fast: "1Gi",
        },
    )
    ports = [{"port": 80}]
    assert (
        http.post(
            f"{ns}/services",
            {"metadata": {"name": "a"}, "spec": {"type": "NodePort", "ports": ports}},
        ).status
        == 201
    )
    refused = http.post(
        f"{ns}/services",
        {"metadata": {"name": "b"}, "spec": {"type": "LoadBalancer", "ports": ports}},
    )
    assert "requested: services.nodeports=1" in refused.message
    http.patch(
        f"{ns}/services/a",
        {"spec": {"type": "ClusterIP", "ports": [{"port": 80, "nodePort": None}]}},
    )
    used(http, ns)
    assert claim(http, ns, "x", "1Gi", "fast") == 201 and claim(http, ns, "y", "1Gi", "fast") == 403
    assert claim(http, ns, "z", "2Gi", "slow") == 201 and claim(http, ns, "w", "1Mi", "slow") == 403


def claim(http: Http, ns: str, name: str, size: str, kind: str) -> int:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": kind,
        "resources": {"requests": {"storage": size}},
    }
    return http.post(
        f"{ns}/persistentvolumeclaims", {"metadata": {"name": name}, "spec": spec}
    ).status


def test_a_quota_counts_what_was_there_before(http: Http, ns: str) -> None:
    for number in range(3):
        http.post(f"{ns}/secrets", {"metadata": {"name": f"s{number}"}})
    quota(http, ns, {"secrets": "2"})
    used(http, ns, secrets="3")
    assert http.post(f"{ns}/secrets", {"metadata": {"name": "late"}}).status == 403
    http.patch(f"{ns}/resourcequotas/rq", {"spec": {"hard": {"secrets": "4"}}})
    assert http.post(f"{ns}/secrets", {"metadata": {"name": "late"}}).status == 201
    http.patch(f"{ns}/resourcequotas/rq/status", {"status": {"used": {"secrets": "0"}}})
    used(http, ns, secrets="4")


def limited(http: Http, ns: str, **item: Any) -> None:
    assert (
        http.post(
            f"{ns}/limitranges", {"metadata": {"generateName": "l"}, "spec": {"limits": [item]}}
        ).status
        == 201
    )


def test_a_range_fills_what_a_container_leaves_open(http: Http, ns: str) -> None:
    limited(
        http,
        ns,
        type="Container",
        default={"cpu": "500m", "memory": "1Gi"},
        defaultRequest={"cpu": "100m"},
    )
    made = http.post(f"{ns}/pods", pod("a")).tree
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "500m", "memory": "1Gi"},
        "requests": {"cpu": "100m", "memory": "1Gi"},
    }
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
    )


def test_the_next_pod_gets_what_a_range_says_now(http: Http, ns: str) -> None:
    def defaults() -> Any:
        pods = {"metadata": {"generateName": "p"}, "spec": pod("a")["spec"]}
        made = http.post(f"{ns}/pods", pods).tree
        return made["spec"]["containers"][0]["resources"].get("requests")

    limited(http, ns, type="Container", defaultRequest={"cpu": "100m"})
    assert [defaults(), defaults()] == [{"cpu": "100m"}] * 2
    [item] = http.get(f"{ns}/limitranges").tree["items"]
    place = f"{ns}/limitranges/{item['metadata']['name']}"
    change = {"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "200m"}}]}}
    assert http.patch(place, change).status == 200
    assert [defaults(), defaults()] == [{"cpu": "200m"}] * 2
    limited(http, ns, type="Container", defaultRequest={"memory": "1Gi"})
    assert defaults() == {"cpu": "200m", "memory": "1Gi"}
    assert http.delete(place).status == 200
    assert defaults() == {"memory": "1Gi"}


@pytest.mark.parametrize(
    ("item", "resources", "text"),
    [
        (
            {"max": {"cpu": "1"}},
            {"limits": {"cpu": "2"}},
            "maximum cpu usage per Container is 1, but limit is 2",
        ),
        (
            {"min": {"cpu": "1"}},
            {"requests": {"cpu": "10m"}},
            "minimum cpu usage per Container is 1, but request is 10m",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
        ),
    ],
)
def test_a_range_is_a_bound(
    http: Http, ns: str, item: dict[str, Any], resources: dict[str, Any], text: str
) -> None:
    limited(http, ns, type="Container", **item)
    refused = http.post(
        f"{ns}/pods",
        pod("b", containers=[{"name": "c", "image": "busybox:1", "resources": resources}]),
    )
    assert (refused.status, refused.message) == (403, f'pods "b" is forbidden: {text}')


def test_a_range_bounds_whole_pods_and_claims(http: Http, ns: str) -> None:
    limited(http, ns, type="Pod", max={"cpu": "1"})
    limited(http, ns, type="PersistentVolumeClaim", min={"storage": "1Gi"}, max={"storage": "2Gi"})
    one = {"name": "a", "image": "busybox:1", "resources": {"limits": {"cpu": "600m"}}}
    refused = http.post(f"{ns}/pods", pod("b", containers=[one, {**one, "name": "b"}]))
    assert "maximum cpu usage per Pod is 1, but limit is 1200m" in refused.message
    assert [claim(http, ns, f"c{size}", f"{size}Gi", "x") for size in (1, 2, 3)] == [201, 201, 403]


def test_classes_that_are_marked_are_the_default(http: Http, ns: str) -> None:
    mark = {"storageclass.kubernetes.io/is-default-class": "true"}
    http.post(
        "/apis/storage.k8s.io/v1/storageclasses",
        {"metadata": {"name": "marked", "annotations": mark}, "provisioner": "example.com/p"},
    )
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = http.post(f"{ns}/persistentvolumeclaims", {"metadata": {"name": "a"}, "spec": spec}).tree
    assert made["spec"]["storageClassName"] == "marked" and made["metadata"]["finalizers"] == [
        "kubernetes.io/pvc-protection"
    ]
    none = http.post(
        f"{ns}/persistentvolumeclaims",
        {"metadata": {"name": "b"}, "spec": {**spec, "storageClassName": ""}},
    ).tree
    assert none["spec"]["storageClassName"] == ""
    http.delete("/apis/storage.k8s.io/v1/storageclasses/marked")


def test_a_runtime_costs_what_its_class_says(http: Http, ns: str) -> None:
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    http.post(
        classes,
        {"metadata": {"name": "heavy"}, "handler": "h", "overhead": {"podFixed": {"cpu": "100m"}}},
    )
    made = http.post(f"{ns}/pods", pod("a", runtimeClassName="heavy"))
    assert made.tree["spec"]["overhead"] == {"cpu": "100m"}
    missing = http.post(f"{ns}/pods", pod("b", runtimeClassName="none"))
    assert missing.message == 'pods "b" is forbidden: pod rejected: RuntimeClass "none" not found'
    http.delete(f"{classes}/heavy")
