"""The PodGroups of plain pods."""

from typing import Any

import pytest

from hekla.api import names
from hekla.controllers.podgroup import group_of_pod


def pod(
    *, owner: str = "", annotations: dict[str, str] | None = None, **more: Any
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": "web-0",
        "namespace": "default",
        "uid": "pod-uid",
        "annotations": annotations or {},
    }
    if owner:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "web",
                "uid": owner,
                "controller": True,
            }
        ]
    metadata.update(more.pop("metadata", {}))
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": metadata,
        "spec": {"schedulerName": "volcano", "containers": [container], **more},
    }


@pytest.mark.scenario("controllers", 92)
def test_the_pods_of_one_owner_are_one_group() -> None:
    made = group_of_pod(pod(owner="rs-uid", priorityClassName="high"), {})
    assert made["metadata"]["name"] == "podgroup-rs-uid"
    assert made["metadata"]["ownerReferences"][0]["uid"] == "rs-uid"
    assert made["spec"]["minMember"] == 1 and made["spec"]["priorityClassName"] == "high"
    assert made["status"] == {"phase": "Pending"}


@pytest.mark.scenario("controllers", 93)
def test_a_pod_alone_is_a_group_of_its_own() -> None:
    made = group_of_pod(pod(), {})
    assert made["metadata"]["name"] == "podgroup-pod-uid"
    assert made["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "web-0",
            "uid": "pod-uid",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert "queue" not in made["spec"]


@pytest.mark.scenario("controllers", 94)
@pytest.mark.parametrize(("text", "members"), [("2", 2), ("0", 0), ("-1", 1), ("many", 1)])
def test_the_owner_says_how_many(text: str, members: int) -> None:
    made = group_of_pod(pod(owner="rs"), {names.GROUP_MIN_MEMBER: text})
    assert made["spec"]["minMember"] == members
    assert made["spec"].get("minResources", {}).get("cpu", "0") == str(members)


@pytest.mark.scenario("controllers", 95)
def test_what_a_pod_says_itself() -> None:
    annotations = {names.GROUP_QUEUE_NAME: "research", names.PREEMPTABLE: "true", "note": "x"}
    made = group_of_pod(
        pod(
            annotations=annotations,
            metadata={"annotations": annotations, "labels": {names.COOLDOWN_TIME: "5m"}},
        ),
        {},
    )
    assert made["spec"]["queue"] == "research" and made["spec"]["minMember"] == 1
    assert made["spec"]["minResources"]["cpu"] == "1"
    assert made["metadata"]["annotations"] == {names.PREEMPTABLE: "true"}
    assert made["metadata"]["labels"] == {names.COOLDOWN_TIME: "5m"}


@pytest.mark.scenario("controllers", 96)
def test_what_an_owner_hands_down() -> None:
    owner = {
        names.GROUP_MIN_MEMBER: "3",
        "volcano.sh/custom": "y",
        names.JDB_MIN_AVAILABLE: "2",
        "app": "z",
    }
    made = group_of_pod(
        pod(owner="rs", annotations={names.JDB_MIN_AVAILABLE: "1", names.JDB_MAX_UNAVAILABLE: "9"}),
        owner,
    )
    assert made["spec"]["minResources"]["cpu"] == "3"
    assert made["metadata"]["annotations"] == {
        "volcano.sh/custom": "y",
        names.JDB_MIN_AVAILABLE: "1",
    }
    made = group_of_pod(pod(owner="rs"), {names.JDB_MAX_UNAVAILABLE: "20%"})
    assert made["metadata"]["annotations"] == {names.JDB_MAX_UNAVAILABLE: "20%"}


@pytest.mark.scenario("controllers", 99)
@pytest.mark.parametrize(
    ("mode", "tier", "wanted"),
    [
        ("hard", "2", {"mode": "hard", "highestTierAllowed": 2}),
        ("Soft", None, {"mode": "soft"}),
        (None, "2", {"mode": "hard", "highestTierAllowed": 2}),
        ("loose", "x", {"mode": "hard"}),
        (None, None, None),
    ],
)
def test_topology(mode: str | None, tier: str | None, wanted: dict[str, Any] | None) -> None:
    given = {names.NETWORK_TOPOLOGY_MODE: mode, names.NETWORK_TOPOLOGY_HIGHEST_TIER: tier}
    made = group_of_pod(
        pod(annotations={key: value for key, value in given.items() if value is not None}), {}
    )
    assert made["spec"].get("networkTopology") == wanted
