"""What of a change concerns whom: an object is not looked at for the sake of controllers that have
nothing to do with it."""

from __future__ import annotations

import msgspec
import pytest

from hekla.api.meta import OwnerReference
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.connection.config import Connection
from hekla.kube.events import Recorder
from hekla.kube.http.client import Target
from hekla.local.controller_manager.daemon import Manager
from hekla.local.controller_manager.garbage import GarbageCollector, Owned, OwnedMetadata
from hekla.local.controller_manager.pods import DEVICES, UNMANAGED, VOLUMES, Pod, managed_by
from hekla.local.controller_manager.resources import Resource
from hekla.local.controller_manager.services.endpoints import SELECTED

SETS = Resource("apps", "v1", "ReplicaSet", "replicasets", True, frozenset())
PODS = Resource("", "v1", "Pod", "pods", True, frozenset())


@pytest.fixture
def client():
    return Client(Connection(Target(host="127.0.0.1", port=1)))


@pytest.fixture
def manager(client):
    return Manager(client, Recorder(client, "test"), "", None, 40.0, None)


def pod(name="p", *, owner=None, labels=None, ip="", **spec):
    reference = (
        {"apiVersion": owner[0], "kind": owner[1], "name": "o", "uid": "uid-o", "controller": True}
        if owner
        else None
    )
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "resourceVersion": "1",
                "labels": labels or {},
                "ownerReferences": [reference] if reference else [],
            },
            "spec": spec,
            "status": {"phase": "Running", "podIP": ip},
        },
        Pod,
    )


def put(cache: Cache, *objects) -> None:
    for obj in objects:
        meta = obj["metadata"] if isinstance(obj, dict) else None
        cache._put(f"default/{meta['name'] if meta else obj.metadata.name}", obj)


def test_a_pod_says_whom_it_concerns():
    assert pod().concerns == (UNMANAGED,)
    assert pod(owner=("apps/v1", "ReplicaSet")).concerns == (managed_by("apps/v1", "ReplicaSet"),)
    claimed = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "empty", "emptyDir": {}},
    ]
    assert pod(volumes=claimed, resourceClaims=[{"name": "gpu"}]).concerns == (
        UNMANAGED,
        VOLUMES,
        DEVICES,
    )
    assert pod(volumes=claimed[1:]).concerns == (UNMANAGED,)


def test_pods_of_an_owner_that_no_built_in_controller_knows_reach_none_of_those_that_manage_pods(
    manager, monkeypatch
):
    heard = []
    for controller in manager.controllers:
        if pod_control := getattr(controller, "pod_control", None):
            monkeypatch.setattr(
                pod_control.expectations,
                "observe",
                lambda old, new, name=controller.name: heard.append(name),
            )

    put(manager.pods, pod("of-a-batch-job", owner=("batch.volcano.sh/v1alpha1", "Job")))
    assert heard == []

    put(manager.pods, pod("of-a-set", owner=("apps/v1", "ReplicaSet")))
    assert heard == ["replicaset"]

    put(manager.pods, pod("orphan"))
    assert sorted(heard[1:]) == [
        "daemonset",
        "job",
        "replicaset",
        "replicationcontroller",
        "statefulset",
    ]


def test_a_pod_concerns_the_services_that_select_it_and_no_others(manager):
    endpoints = next(
        controller for controller in manager.controllers if controller.name == "endpoints"
    )
    services = endpoints.services

    def service(name, **selector):
        return {
            "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
            "spec": {"selector": selector},
        }

    put(
        services,
        service("web", app="web"),
        service("front", app="web", tier="front"),
        service("bare"),
    )
    put(services, *(service(f"job-{n}", job=f"j-{n}", within="default") for n in range(100)))
    asked = []
    by = services.by
    services.by = lambda index, value: asked.extend(found := by(index, value)) or found
    endpoints.queue.add_after = lambda key, seconds: endpoints.queue.add(key)
    while endpoints.queue._ready:
        endpoints.queue._wanted.discard(endpoints.queue._ready.popleft())

    endpoints.queue_services(
        None, pod("a", labels={"app": "web", "job": "j-7", "within": "default"}, ip="10.0.0.1")
    )

    assert sorted(endpoints.queue._ready) == ["default/job-7", "default/web"]
    assert len(asked) <= 3
    assert len(services.values(SELECTED)) == 102


def test_how_many_pods_a_namespace_has_is_not_found_out_by_listing_them(manager, monkeypatch):
    named = {controller.name: controller for controller in manager.controllers}
    endpoints, budgets = named["endpoints"], named["disruption"]
    meta = {"name": "web", "namespace": "default", "uid": "web", "resourceVersion": "1"}
    put(endpoints.services, {"metadata": meta, "spec": {"selector": {"app": "web"}}})
    put(budgets.budgets, {"metadata": meta, "spec": {"selector": {"matchLabels": {"app": "web"}}}})
    put(manager.pods, *(pod(f"other-{n}") for n in range(100)))
    waits = []
    for controller in (endpoints, budgets):
        monkeypatch.setattr(
            controller.queue, "add_after", lambda key, seconds: waits.append((key, seconds))
        )
    monkeypatch.setattr(
        manager.pods, "by", lambda index, value: pytest.fail(f"a list of all pods of {value}")
    )

    one = pod("a", labels={"app": "web"}, ip="10.0.0.1")
    endpoints.queue_services(None, one)
    budgets.pod_changed(None, one)

    assert waits == [("default/web", 0.1), ("default/web", 0.05)]


def test_what_is_made_under_an_owner_that_stands_asks_for_no_look(client):
    collector = GarbageCollector(client, Recorder(client, "test"))
    collector.synced = True

    def owned(name, *owners, **more):
        references = tuple(
            OwnerReference(api_version="apps/v1", kind="ReplicaSet", name=uid, uid=uid)
            for uid in owners
        )
        return Owned(
            OwnedMetadata(
                name=name, namespace="default", uid=name, owner_references=references, **more
            )
        )

    collector.observe(SETS, None, owned("set"))
    child = owned("child", "set")
    collector.observe(PODS, None, child)
    collector.observe(PODS, child, owned("child", "set", resource_version="2"))
    assert not collector.queue

    collector.observe(PODS, None, owned("stray", "unknown"))
    assert list(collector.queue._ready) == ["stray"]

    collector.observe(SETS, owned("set"), None)
    assert list(collector.queue._ready) == ["stray", "child"]


def test_what_is_made_under_an_owner_that_is_going_is_looked_at(client):
    collector = GarbageCollector(client, Recorder(client, "test"))
    collector.synced = True
    going = OwnedMetadata(
        name="set",
        namespace="default",
        uid="set",
        deletion_timestamp="2026-01-01T00:00:00Z",
        finalizers=("foregroundDeletion",),
    )
    collector.observe(SETS, None, Owned(going))
    collector.queue.close()

    late = GarbageCollector(client, Recorder(client, "test"))
    late.synced, late.graph = True, collector.graph
    reference = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="set", uid="set")
    late.observe(
        PODS,
        None,
        Owned(
            OwnedMetadata(
                name="child", namespace="default", uid="child", owner_references=(reference,)
            )
        ),
    )

    assert list(late.queue._ready) == ["child"]
