"""Checklist 62 to 77: lists, selectors, watch."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.cluster import objects
from tests.cluster.api import PATIENCE, Api, eventually
from tests.cluster.conftest import Namespace

LABELLED = {"one": {"a": "x"}, "two": {"a": "y"}, "three": {"a": "5"}, "four": {"b": "z"}}


@pytest.fixture(scope="module")
def labelled(api: Api, ns: Namespace) -> Namespace:
    for name, labels in LABELLED.items():
        api.create(ns.path("secrets"), {"metadata": {"name": name, "labels": labels}})
    return ns


def test_item_062_pages(api: Api, new_ns: object) -> None:
    ns = new_ns()  # type: ignore[operator]
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda n: api.create(
                    ns.path("configmaps"), objects.config_map(f"n{n:04}", labels={"page": "1"})
                ),
                range(1199),
            )
        )
    pages, token = [], ""
    while not pages or token:
        pages.append(
            api.get(ns.path("configmaps"), limit=500, **({"continue": token} if token else {}))
        )
        token = pages[-1].meta.get("continue", "")
        if len(pages) == 1:
            api.create(ns.path("configmaps"), objects.config_map("zz-later"))
    names = [name for page in pages for name in page.names]
    assert len(names) == len(set(names)) == 1200  # kube-root-ca.crt is one of them
    assert [len(page.names) for page in pages] == [500, 500, 200]
    assert len({page.version for page in pages}) == 1
    assert [page.meta.get("remainingItemCount") for page in pages] == [700, 200, None]


@pytest.mark.parametrize("token", ["nonsense", base64.b64encode(b"{}").decode()])
def test_item_063_a_tampered_token(api: Api, ns: Namespace, token: str) -> None:
    answer = api.get(ns.path("configmaps"), **{"limit": 1, "continue": token})
    assert (answer.status, answer.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("a in (x,y)", {"one", "two"}),
        ("a notin (x)", {"two", "three", "four"}),
        ("!a", {"four"}),
        ("a!=x", {"two", "three", "four"}),
        ("a>3", {"three"}),
        ("a", {"one", "two", "three"}),
        ("a=x,b", set()),
    ],
)
def test_item_064_label_selectors(
    api: Api, labelled: Namespace, selector: str, names: set[str]
) -> None:
    assert set(api.get(labelled.path("secrets"), labelSelector=selector).names) == names


def test_item_065_field_selectors(api: Api, new_ns: Callable[[], Namespace]) -> None:
    ns = new_ns()
    api.create(ns.path("pods"), objects.pod("free"))
    api.create(ns.path("pods"), objects.pod("bound", nodeName="n1"))
    for kind, reason in (("Pod", "Failed"), ("Pod", "Other"), ("Node", "Failed")):
        about = {"kind": kind, "name": "x", "namespace": ns.name}
        metadata = {"generateName": f"{kind}-{reason}-".lower()}
        api.create(
            ns.path("events"), {"metadata": metadata, "involvedObject": about, "reason": reason}
        )

    def find(resource: str, selector: str) -> list[str]:
        return api.get(ns.path(resource), fieldSelector=selector).names

    assert find("pods", "spec.nodeName=") == ["free"]
    assert find("pods", "spec.nodeName=n1") == ["bound"]
    assert find("pods", "status.phase=Pending") == ["bound", "free"]
    assert find("pods", "metadata.name=free") == ["free"]
    assert [name[:10] for name in find("events", "involvedObject.kind=Pod,reason=Failed")] == [
        "pod-failed"
    ]
    answer = api.get(ns.path("pods"), fieldSelector="spec.foo=x")
    assert answer.status == 400 and "field label not supported: spec.foo" in answer.message


def test_item_066_versions_of_a_list(api: Api, labelled: Namespace) -> None:
    path = labelled.path("secrets")
    newest = api.get(path)
    assert api.get(path, resourceVersion="0").tree["items"] == newest.tree["items"]
    future = api.get(path, resourceVersion=str(int(newest.version) + 10**9))
    assert (future.status, future.cause_reasons) == (504, ["ResourceVersionTooLarge"])


def test_item_067_a_watch_misses_nothing(api: Api, ns: Namespace) -> None:
    count, writers = 1000, 4
    version = api.get(ns.path("configmaps")).version
    with api.watch(ns.path("configmaps"), resourceVersion=version, labelSelector="storm") as watch:

        def write(first: int) -> None:
            for number in range(first, count, writers):
                api.create(
                    ns.path("configmaps"),
                    objects.config_map(f"storm-{number}", labels={"storm": "1"}),
                )

        threads = [threading.Thread(target=write, args=(first,)) for first in range(writers)]
        for thread in threads:
            thread.start()
        seen = [watch.next() for _ in range(count)]
        for thread in threads:
            thread.join()
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in seen]
    assert versions == sorted(versions) and versions[0] > int(version)
    assert {event["object"]["metadata"]["name"] for event in seen} == {
        f"storm-{number}" for number in range(count)
    }
    assert {event["type"] for event in seen} == {"ADDED"}
    api.delete(ns.path("configmaps"), labelSelector="storm")


def test_item_068_without_a_version_what_exists_comes_first(api: Api, labelled: Namespace) -> None:
    with api.watch(labelled.path("secrets"), labelSelector="a") as watch:
        assert sorted(watch.take(3)) == [("ADDED", "one"), ("ADDED", "three"), ("ADDED", "two")]
        api.create(
            labelled.path("secrets"), {"metadata": {"name": "live", "labels": {"a": "live"}}}
        )
        assert watch.take(1) == [("ADDED", "live")]
    api.delete(labelled.path("secrets", "live"))


def test_item_069_selectors_filter_by_transition(api: Api, ns: Namespace) -> None:
    made = api.create(ns.path("configmaps"), objects.config_map("moody"))
    with api.watch(
        ns.path("configmaps"),
        resourceVersion=made["metadata"]["resourceVersion"],
        labelSelector="mood=good",
    ) as watch:
        api.patch(ns.path("configmaps", "moody"), {"metadata": {"labels": {"mood": "good"}}})
        assert watch.take(1) == [("ADDED", "moody")]
        changed = api.patch(
            ns.path("configmaps", "moody"), {"metadata": {"labels": {"mood": "bad"}}}
        )
        event = watch.next()
    assert (event["type"], event["object"]["metadata"]["labels"]) == ("DELETED", {"mood": "good"})
    assert event["object"]["metadata"]["resourceVersion"] == changed.version


def test_item_070_binding_shows_a_pod_to_its_node(api: Api, ns: Namespace) -> None:
    made = api.create(ns.path("pods"), objects.pod("arriving"))
    query = {
        "resourceVersion": made["metadata"]["resourceVersion"],
        "fieldSelector": "spec.nodeName=node-of-nobody",
    }
    with api.watch("/api/v1/pods", **query) as watch:
        target = {
            "metadata": {"name": "arriving"},
            "target": {"kind": "Node", "name": "node-of-nobody"},
        }
        assert api.post(ns.path("pods", "arriving", "binding"), target).status == 201
        assert watch.take(1) == [("ADDED", "arriving")]


def test_item_071_a_watch_ends_with_a_bookmark(api: Api, labelled: Namespace, own: bool) -> None:
    began = time.monotonic()
    # A server may send it two seconds before the end, and only if it has seen the collection change
    # since.
    passing = api.create(labelled.path("secrets"), {"metadata": {"name": "passing"}})
    api.delete(labelled.path("secrets", "passing"))
    newest = passing["metadata"]["resourceVersion"]
    with api.watch(
        labelled.path("secrets"),
        timeoutSeconds=4,
        allowWatchBookmarks="true",
        resourceVersion=newest,
    ) as watch:
        events = watch.rest()
    assert time.monotonic() - began > 3.5
    if events[-1]["type"] != "BOOKMARK" and not own:
        pytest.skip(
            "bookmarks are sent at a server's discretion (Kubernetes' API concepts), and this one sent none"
        )
    assert (
        events[-1]["type"] == "BOOKMARK"
        and int(events[-1]["object"]["metadata"]["resourceVersion"]) > 0
    )


STREAMING = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


def test_item_072_streaming_lists(api: Api, labelled: Namespace) -> None:
    with api.watch(labelled.path("secrets"), **STREAMING) as watch:
        events = watch.until(lambda event: event["type"] == "BOOKMARK")
        assert {event["object"]["metadata"]["name"] for event in events[:-1]} >= set(LABELLED)
        assert (
            events[-1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"
        )
        api.create(labelled.path("secrets"), {"metadata": {"name": "after"}})
        assert watch.take(1) == [("ADDED", "after")]


def test_item_072_an_empty_collection_streams_too(api: Api, ns: Namespace) -> None:
    with api.watch(ns.path("apps/v1/daemonsets"), **STREAMING) as watch:
        event = watch.next()
    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"


def test_item_073_streaming_needs_its_match(api: Api, ns: Namespace) -> None:
    assert api.get(ns.path("secrets"), watch="true", sendInitialEvents="true").status == 422


def test_item_076_versions_grow_over_restarts(api: Api, ns: Namespace, own: bool) -> None:
    """The API server is killed twice and comes back by itself: versions go on growing, a watch goes
    on where it was."""
    if not own:
        pytest.skip("the API server of a cluster that is not ours is not ours to kill")
    import os
    import signal

    from hekla.local.cluster.cluster import Cluster
    from tests.chaos.killing import pid_of

    cluster = Cluster(api.kubeconfig.parent)

    def server() -> int:
        return pid_of(cluster, "apiserver", ready=True)

    def another(before: int) -> bool:
        return server() not in (0, before)

    versions = [
        int(
            api.create(ns.path("configmaps"), objects.config_map("era-0"))["metadata"][
                "resourceVersion"
            ]
        )
    ]
    for era in (1, 2):
        before = server()
        os.kill(before, signal.SIGKILL)
        eventually(partial(another, before))
        made = eventually(partial(_created, api, ns, f"era-{era}"))
        versions.append(made)
        with api.watch(
            ns.path("configmaps"), resourceVersion=str(versions[-2]), labelSelector="!storm"
        ) as watch:
            events = watch.until(
                lambda event, era=era: (
                    event["type"] == "ERROR" or event["object"]["metadata"]["name"] == f"era-{era}"
                )
            )
        told = [event["object"]["metadata"]["name"] for event in events if event["type"] == "ADDED"]
        assert (events[-1]["type"] == "ERROR" and events[-1]["object"]["code"] == 410) or told == [
            f"era-{era}"
        ], json.dumps(events)
    assert versions == sorted(set(versions))


def test_item_074_an_expired_version(api: Api, ns: Namespace) -> None:
    """A young server may still know everything; then it must tell everything."""
    with api.watch(ns.path("secrets"), resourceVersion="1", timeoutSeconds=1) as watch:
        events = watch.rest()
    assert watch.status == 200
    if not events or events[0]["type"] != "ERROR":
        pytest.skip("this server still has the whole of its history, so no version has expired")
    assert len(events) == 1
    assert (events[0]["object"]["code"], events[0]["object"]["reason"]) == (410, "Expired")


INFORMED = [
    "pods", "nodes", "namespaces", "services", "replicationcontrollers", "persistentvolumes", "persistentvolumeclaims",
    "resourcequotas", "apps/v1/replicasets", "apps/v1/statefulsets", "storage.k8s.io/v1/storageclasses",
    "storage.k8s.io/v1/csinodes", "storage.k8s.io/v1/csidrivers", "storage.k8s.io/v1/csistoragecapacities",
    "storage.k8s.io/v1/volumeattachments", "policy/v1/poddisruptionbudgets", "scheduling.k8s.io/v1/priorityclasses",
    "resource.k8s.io/v1/resourceclaims", "resource.k8s.io/v1/resourceslices", "resource.k8s.io/v1/deviceclasses",
]  # fmt: skip


def test_item_075_every_informer_of_a_scheduler_syncs(api: Api) -> None:
    """What a shared informer of client-go 0.36 asks first, of every kind that a batch scheduler
    looks at."""
    for resource in INFORMED:
        path = f"/apis/{resource}" if "/" in resource else f"/api/v1/{resource}"
        with api.watch(
            path,
            accept="application/vnd.kubernetes.protobuf,application/json",
            timeoutSeconds=300,
            **STREAMING,
        ) as watch:
            assert watch.status == 200, resource
            # In either form: the server chooses of the two.
            watch.read_up_to(b"k8s.io/initial-events-end")


def test_item_077_the_election_of_a_leader(api: Api, ns: Namespace) -> None:
    """What a Lease election of Go clients sends: the lost race is a 409, the taken-over lease
    counts one more transition."""
    path, leases = (
        ns.path("coordination.k8s.io/v1/leases", "leader"),
        ns.path("coordination.k8s.io/v1/leases"),
    )
    assert api.get(path).status == 404
    first = api.create(leases, objects.lease("leader", "one"))
    assert api.post(leases, objects.lease("leader", "two")).status == 409
    renewed = api.put(
        path, {**first, "spec": {**first["spec"], "renewTime": "2026-01-01T00:00:02.654321Z"}}
    )
    assert renewed.tree["spec"]["renewTime"] == "2026-01-01T00:00:02.654321Z"
    taken = {**renewed.tree["spec"], "holderIdentity": "two", "leaseTransitions": 1}
    assert api.put(path, {**first, "spec": taken}).status == 409
    assert api.put(path, {**renewed.tree, "spec": taken}).tree["spec"]["leaseTransitions"] == 1


@pytest.mark.slow
def test_item_077_a_killed_holder_is_replaced(api: Api, ns: Namespace) -> None:
    """Three candidates of client-go's default timing; the holder stops renewing and another takes
    over within 20 s."""
    import asyncio

    from hekla.kube.client import Client
    from hekla.kube.connection.config import load
    from hekla.kube.leader import LeaderElection

    async def story() -> None:
        async with Client(load(str(api.kubeconfig))) as client:
            held: list[str] = []

            async def candidate(name: str) -> None:
                async def lead() -> None:
                    held.append(name)
                    await asyncio.Event().wait()

                await LeaderElection(client, "race", ns.name, holder=name, release=False).run(lead)

            tasks = {name: asyncio.create_task(candidate(name)) for name in ("a", "b", "c")}
            while not held:
                await asyncio.sleep(0.1)
            tasks[held[0]].cancel()
            deadline = time.monotonic() + PATIENCE
            while len(held) < 2 and time.monotonic() < deadline:
                await asyncio.sleep(0.1)
            for task in tasks.values():
                task.cancel()
            assert len(held) == 2

    asyncio.run(story())
    assert (
        api.get(ns.path("coordination.k8s.io/v1/leases", "race")).tree["spec"]["leaseTransitions"]
        == 1
    )


def _created(api: Api, ns: Namespace, name: str) -> int:
    try:
        answer = api.post(ns.path("configmaps"), objects.config_map(name))
    except OSError:
        return 0
    if answer.status == 409:
        answer = api.get(ns.path("configmaps", name))
    return int(answer.version) if answer.status < 300 else 0
