"""Kinds: where objects live, that they survive the wire, and that one odd object does not hide the
others."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from hekla.api import batch, catalog, scheduling
from hekla.api.kinds import Kind, Malformed, names_of
from hekla.api.kubernetes import apps, core
from hekla.api.meta import ObjectMeta, Status, key, split_key, wire_name
from tests.api.sample import NEWER, NOT_KEPT, SAMPLES, filled

EVERY_KIND = catalog.BATCH + catalog.BUILT_IN


def test_paths() -> None:
    assert core.POD.path("default", "p1") == "/api/v1/namespaces/default/pods/p1"
    assert core.POD.path("default", "p1", "binding") == "/api/v1/namespaces/default/pods/p1/binding"
    assert core.POD.path() == "/api/v1/pods"
    assert core.NODE.path(None, "n1") == "/api/v1/nodes/n1"
    assert batch.JOB.path("team") == "/apis/batch.volcano.sh/v1alpha1/namespaces/team/jobs"
    assert (
        scheduling.QUEUE.path(name="q/../x")
        == "/apis/scheduling.volcano.sh/v1beta1/queues/q%2F..%2Fx"
    )


def test_an_object_in_a_namespace_has_no_path_without_one() -> None:
    with pytest.raises(ValueError, match="a Pod lives in a namespace"):
        core.POD.path(name="p1")


def test_a_kind_is_found_by_the_words_of_an_owner_reference() -> None:
    assert catalog.find("apps/v1", "ReplicaSet") is apps.REPLICA_SET
    assert catalog.find("batch.volcano.sh/v1alpha1", "Job") is batch.JOB
    assert catalog.find("batch.volcano.sh/v1alpha1", "Nonsense") is None


def test_a_kind_is_found_by_what_a_person_types() -> None:
    names = names_of(catalog.INSTALLED)
    assert names["vj"] is names["jobs.batch.volcano.sh"] is names["job"] is batch.JOB
    assert names["q"] is scheduling.QUEUE


def test_keys() -> None:
    pod = core.Pod(metadata=ObjectMeta(name="p", namespace="ns"))
    assert key(pod) == key({"metadata": {"name": "p", "namespace": "ns"}}) == "ns/p"
    assert key(core.Node(metadata=ObjectMeta(name="n"))) == "n"
    assert split_key("ns/p") == ("ns", "p")
    assert split_key("n") == ("", "n")


@pytest.mark.parametrize(
    ("attribute", "name"),
    [
        ("node_name", "nodeName"),
        ("pod_ip", "podIP"),
        ("pod_ips", "podIPs"),
        ("pod_cidrs", "podCIDRs"),
        ("host_pid", "hostPID"),
        ("set_hostname_as_fqdn", "setHostnameAsFQDN"),
        ("container_id", "containerID"),
        ("uid", "uid"),
        ("continue_", "continue"),
        ("un_know_jobs", "unKnowJobs"),
        ("downward_api", "downwardAPI"),
        ("api_version", "apiVersion"),
        ("system_uuid", "systemUUID"),
    ],
)
def test_wire_names(attribute: str, name: str) -> None:
    assert wire_name(attribute) == name


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: f"{kind.api_version}-{kind.kind}")
def test_every_field_survives_the_wire(kind: Kind[Any]) -> None:
    whole = filled(kind.type)
    encoded = msgspec.json.encode(whole)
    assert kind.decode(encoded) == whole
    assert len(json.loads(encoded)) == len(msgspec.structs.fields(kind.type))


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: f"{kind.api_version}-{kind.kind}")
def test_an_empty_object_knows_what_it_is_and_says_nothing_else(kind: Kind[Any]) -> None:
    empty = kind.decode(b'{"metadata":{"name":"x"}}')
    assert (empty.api_version, empty.kind) == (kind.api_version, kind.kind)
    tree = json.loads(msgspec.json.encode(empty))
    assert tree["metadata"] == {"name": "x"}


def test_numbers_that_go_always_writes_are_written() -> None:
    status = core.ContainerStatus(
        name="main", state=core.ContainerState(terminated=core.ContainerStateTerminated())
    )
    tree = json.loads(msgspec.json.encode(status))
    assert tree["restartCount"] == 0
    assert tree["ready"] is False
    assert tree["state"]["terminated"]["exitCode"] == 0


def test_a_template_keeps_members_that_nobody_knows() -> None:
    job = batch.JOB.decode(b'{"spec":{"tasks":[{"template":{"spec":{"futureField":[1]}}}]}}')
    assert job.spec.tasks[0].template == {"spec": {"futureField": [1]}}


POD = (
    b'{"metadata":{"name":"good","namespace":"ns","resourceVersion":"5"},"spec":{"nodeName":"n1"}}'
)
ODD = b'{"metadata":{"name":"odd","namespace":"ns","resourceVersion":"6"},"spec":{"nodeName":{"is":"a tree"}}}'


def test_a_list_with_an_odd_object_gives_the_others_and_names_it() -> None:
    listing = core.POD.decode_list(
        b'{"metadata":{"resourceVersion":"9","continue":"c"},"items":[' + POD + b"," + ODD + b"]}"
    )

    assert [pod.metadata.name for pod in listing.items] == ["good"]
    assert (listing.resource_version, listing.continue_) == ("9", "c")
    assert listing.malformed == [
        Malformed("Pod", "ns/odd", "6", "Expected `str`, got `object` - at `$.spec.nodeName`")
    ]
    assert (
        str(listing.malformed[0])
        == "Pod ns/odd cannot be read: Expected `str`, got `object` - at `$.spec.nodeName`"
    )


def test_a_list_of_good_objects_gives_them_all() -> None:
    listing = core.POD.decode_list(
        b'{"metadata":{"resourceVersion":"9","remainingItemCount":3},"items":['
        + POD
        + b","
        + POD
        + b"]}"
    )
    assert len(listing.items) == 2
    assert listing.remaining == 3
    assert not listing.malformed


def test_a_list_of_nothing_may_be_null() -> None:
    assert core.POD.decode_list(b'{"metadata":{"resourceVersion":"9"},"items":null}').items == []


def test_things_that_are_no_objects_are_named_as_far_as_they_can_be() -> None:
    listing = core.POD.decode_list(b'{"items":[7,{"metadata":{"name":5}},' + POD + b"]}")
    assert [one.key for one in listing.malformed] == ["", ""]
    assert str(listing.malformed[0]).startswith("Pod without a name cannot be read: ")
    assert len(listing.items) == 1


def test_a_watch_event_with_an_odd_object_names_it() -> None:
    event = core.POD.decode_event(b'{"type":"MODIFIED","object":' + ODD + b"}")
    assert event.type == "MODIFIED"
    assert isinstance(event.object, Malformed)
    assert event.object.resource_version == "6"


def test_null_is_read_as_absent() -> None:
    pod = core.POD.decode(
        b'{"metadata":{"name":"p","labels":null,"creationTimestamp":null},"spec":{"containers":null,"volumes":[{"name":"v","secret":null}]}}'
    )
    assert pod.metadata.labels == {}
    assert pod.spec.containers == []
    assert pod.spec.volumes[0].secret is None


@pytest.mark.parametrize(
    "kind", [core.POD, core.CONFIG_MAP, core.POD.untyped], ids=["pod", "config map", "untyped"]
)
def test_an_error_in_a_watch_is_a_status(kind: Kind[Any]) -> None:
    event = kind.decode_event(
        b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
        b'"message":"too old resource version: 1 (5)","reason":"Expired","code":410}}'
    )
    assert isinstance(event.object, Status)
    assert (event.object.code, event.object.reason) == (410, "Expired")


def test_a_bookmark_has_a_version_and_nothing_else() -> None:
    event = core.POD.decode_event(
        b'{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"77"}}}'
    )
    assert isinstance(event.object, core.Pod)
    assert event.object.metadata.resource_version == "77"


def test_an_untyped_kind_keeps_trees() -> None:
    untyped = core.POD.untyped
    assert untyped.decode(POD)["spec"] == {"nodeName": "n1"}
    assert untyped.path("ns", "x") == core.POD.path("ns", "x")
    assert untyped.decode_list(b'{"items":[' + ODD + b"]}").items[0]["metadata"]["name"] == "odd"


def lost(before: Any, after: Any, path: str = "") -> list[str]:
    """Paths of members that were there before and are not, or not the same, after."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            trouble
            for name, value in before.items()
            for trouble in (
                lost(value, after[name], f"{path}.{name}") if name in after else [f"{path}.{name}"]
            )
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            trouble
            for one, other in zip(before, after, strict=True)
            for trouble in lost(one, other, path)
        ]
    return [] if before == after else [path]


@pytest.mark.skipif(not SAMPLES.exists(), reason="the wire samples are not beside the repository")
@pytest.mark.parametrize(
    "kind", catalog.BUILT_IN, ids=lambda kind: f"{kind.api_version}-{kind.kind}"
)
def test_samples_of_kubernetes_survive(kind: Kind[Any]) -> None:
    sample = SAMPLES / f"{kind.group or 'core'}.{kind.version}.{kind.kind}.json"
    if not sample.exists():
        pytest.skip(f"no sample of {kind.kind}")
    body = sample.read_bytes()

    back = json.loads(msgspec.json.encode(kind.decode(body)))

    troubles = [
        path
        for path in lost(json.loads(body), back)
        if path.rpartition(".")[2] not in NEWER | NOT_KEPT
    ]
    # of metadata inside an object only what a stored template keeps survives
    assert [path for path in troubles if not re.search(r"(emplate|spec)\.metadata\.", path)] == []
