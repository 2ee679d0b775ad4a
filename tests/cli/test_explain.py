"""`vcctl explain` over prepared objects: what is true now, and nothing that is past."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.answers import JOBS, SCHEDULING, Answers, Tree, command

TEXT = "train needs 1 pod of cpu=1; 0 fit. 1 node: 1 is cordoned."
CORE = "/api/v1/namespaces/default"


@pytest.fixture
def server(running: Answers) -> Answers:
    running.gives.clear()
    running.gives[f"{SCHEDULING}/queues/default"] = {
        "metadata": {"name": "default"},
        "status": {"state": "Open"},
    }
    running.gives[f"{CORE}/pods"] = running.gives[f"{CORE}/events"] = []
    return running


def condition(kind: str, message: str) -> Tree:
    return {"type": kind, "status": "True", "reason": "NotEnoughResources", "message": message}


def explained(
    server: Answers,
    phase: str,
    group: Tree | None = None,
    events: list[Tree] | None = None,
    form: str = "",
    numbers: str = "",
    estimate: str = "",
) -> str:
    metadata = {"name": "train", "namespace": "default", "uid": "u"}
    job: Tree = {
        "metadata": metadata,
        "spec": {"minAvailable": 1, "queue": "default"},
        "status": {"state": {"phase": phase}},
    }
    server.gives[f"{JOBS}/namespaces/default/jobs/train"] = job
    if group is not None:
        marks = {"hekla.io/explanation": numbers, "hekla.io/start-estimate": estimate}
        written = {name: text for name, text in marks.items() if text}
        tree = {
            "metadata": {**metadata, "annotations": written, "name": "train-u"},
            "status": group,
        }
        server.gives[f"{SCHEDULING}/namespaces/default/podgroups/train-u"] = tree
    server.gives[f"{CORE}/events"] = events or []
    result = command(
        "vcctl", "explain", "train", "--master", server.url, *(("-o", form) if form else ())
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def warning(kind: str, name: str, reason: str, message: str, **more: Any) -> Tree:
    about = {"kind": kind, "name": name}
    return {
        "metadata": {"name": f"{name}.{len(more)}"},
        "involvedObject": about,
        "type": "Warning",
        "reason": reason,
        "message": message,
        **more,
    }


def test_a_job_that_waits_says_why_once(server: Answers):
    group = {
        "phase": "Inqueue",
        "conditions": [
            condition("Unschedulable", "1/1 tasks in gang unschedulable"),
            condition("Waiting", TEXT),
        ],
    }
    told = explained(server, "Pending", group, [warning("PodGroup", "train-u", "Waiting", TEXT)])

    assert told.count(TEXT) == 1
    assert "tasks in gang" not in told


@pytest.mark.parametrize("phase", ["Inqueue", "Running"])
def test_what_the_policy_ignores_is_said_once(server: Answers, phase: str):
    text = "The scheduler ignores networkTopology (plugin network-topology-aware)."
    group = {"phase": phase, "conditions": [condition("Ignored", text)]}
    events = [warning("PodGroup", "train-u", "Ignored", text)]
    told = explained(server, "Pending" if phase == "Inqueue" else phase, group, events)
    assert told.count(text) == 1


NUMBERS = {
    "needs": 1,
    "fit": 0,
    "nodes": 1,
    "reasons": [{"reason": "node(s) were unschedulable", "nodes": 1, "text": "is cordoned"}],
}


@pytest.mark.parametrize(("phase", "written", "told"), [
    ("Inqueue", json.dumps({**NUMBERS, "text": "not its word"}), NUMBERS),
    ("Inqueue", "", {}),
    ("Inqueue", "not JSON", {}),
    ("Inqueue", "[]", {}),
    ("Running", json.dumps(NUMBERS), {}),
])  # fmt: skip
def test_programs_are_told_the_numbers_too(server: Answers, phase: str, written: str, told: Tree):
    conditions = [condition("Waiting", TEXT)] if phase == "Inqueue" else []
    found = json.loads(
        explained(
            server,
            "Pending",
            {"phase": phase, "conditions": conditions},
            form="json",
            numbers=written,
        )
    )

    assert {name: found.get(name) for name in told} == told
    assert ("fit" in found, found["text"]) == (bool(told), TEXT if conditions else "")


def test_a_job_that_runs_says_nothing_of_why_it_once_waited(server: Answers):
    group = {
        "phase": "Running",
        "conditions": [condition("Unschedulable", "1/1 tasks in gang unschedulable")],
    }
    told = explained(server, "Running", group, [warning("PodGroup", "train-u", "Waiting", TEXT)])

    assert (
        told
        == "train is Running; it needs 1 pod at once (it has none yet).\n  Its PodGroup train-u is Running.\n"
    )


def test_the_same_warning_stands_once_and_the_newest_last(server: Answers):
    first = warning("Job", "train", "FailedCreate", "quota", lastTimestamp="2026-01-01T00:00:00Z")
    again = warning(
        "Job", "train", "FailedCreate", "quota", lastTimestamp="2026-01-01T00:00:02Z", count=2
    )
    other = warning(
        "Job", "train", "FailedCreate", "no class", lastTimestamp="2026-01-01T00:00:01Z"
    )

    lines = explained(server, "Pending", {"phase": "Inqueue"}, [first, again, other]).splitlines()

    assert [line for line in lines if "FailedCreate" in line] == [
        "  Job train: FailedCreate: no class",
        "  Job train: FailedCreate: quota",
    ]


@pytest.mark.parametrize(("phase", "said"), [
    ("Aborted", "It is suspended, so it has no PodGroup; `vcctl job resume` lets it go on."),
    ("Completed", "It has ended, so it has no PodGroup."),
    ("Pending", "It has no PodGroup yet: the job controller has not taken it up."),
])  # fmt: skip
def test_a_job_without_a_group_says_why_it_has_none(server: Answers, phase: str, said: str):
    assert said in explained(server, phase)


def node(name: str, status: str, message: str = "") -> Tree:
    ready = {
        "type": "Ready",
        "status": status,
        "message": message,
        "lastTransitionTime": "2026-11-22T20:00:00Z",
    }
    return {"metadata": {"name": name}, "status": {"conditions": [ready]}}


def test_a_node_that_is_not_ready_is_named(server: Answers):
    """With the pods of the job that it holds; all of them where the job waits for a node."""
    placed = [
        ("train-0", "silent", "Running"),
        ("train-1", "ghost", "Running"),
        ("train-2", "other", "Succeeded"),
    ]
    server.gives[f"{CORE}/pods"] = [
        {"metadata": {"name": name}, "spec": {"nodeName": node}, "status": {"phase": phase}}
        for name, node, phase in placed
    ]
    server.gives["/api/v1/nodes"] = [
        node("silent", "Unknown", "Kubelet stopped posting node status."),
        node("other", "False"),
        node("good", "True"),
    ]
    told = explained(server, "Running", {"phase": "Running"})
    said = "Node silent, which holds train-0, is not ready: Kubelet stopped posting node status, since 2026-11-22T20:00:00Z."
    assert said in told
    assert "Node ghost, which holds train-1, is not ready: it is gone from the cluster." in told
    assert "other" not in told and "good" not in told

    waiting = {"phase": "Inqueue", "conditions": [condition("Waiting", TEXT)]}
    assert "Node other is not ready" in explained(server, "Pending", waiting)
    found = json.loads(explained(server, "Pending", waiting, form="json"))
    assert sorted(found["nodesNotReady"]) == ["ghost", "other", "silent"]


def test_a_job_that_waits_says_when_it_starts(server: Answers):
    group = {"phase": "Inqueue", "conditions": [condition("Waiting", TEXT)]}
    job_starts = json.dumps(
        {
            "start": "2000-01-01T00:00:00Z",
            "latest": True,
            "after": "default/first",
            "constraint": "room",
            "because": "it needs 1 pod of cpu=1 and cpu is short: 0 fit now",
            "first": "2000-01-01T00:00:00Z",
        }
    )
    told = explained(server, "Pending", group, estimate=job_starts)
    assert "(any moment), when first ends. Now it needs 1 pod of cpu=1" in told
    assert "It starts at the latest " in told
    shown = json.loads(explained(server, "Pending", group, form="json", estimate=job_starts))
    assert shown["startEstimate"]["after"] == "default/first"
    unknown = json.dumps({"constraint": "room", "because": "all that runs is endless"})
    told = explained(server, "Pending", group, estimate=unknown)
    assert "When it starts is not known: all that runs is endless." in told
    assert "tarts" not in explained(server, "Pending", group, estimate="no json")
    assert "tarts" not in explained(server, "Running", {"phase": "Running"}, estimate=job_starts)


def test_a_queue_shows_who_waits_in_it_the_soonest_start_first(server: Answers):
    def group(name: str, estimate: Tree | None, phase: str = "Inqueue") -> Tree:
        marks = {} if estimate is None else {"hekla.io/start-estimate": json.dumps(estimate)}
        owner = {"controller": True, "kind": "Job", "name": name}
        return {
            "metadata": {
                "name": f"{name}-uid",
                "namespace": "default",
                "creationTimestamp": "2000-01-01T00:00:00Z",
                "annotations": marks,
                "ownerReferences": [owner],
            },
            "spec": {"minMember": 2, "queue": "default"},
            "status": {"phase": phase},
        }

    late = {"start": "2001-02-01T00:00:00Z", "after": "default/soon", "constraint": "reservation"}
    soon = {"start": "2001-01-01T00:00:00Z", "after": "other/first", "constraint": "room"}
    server.gives[f"{SCHEDULING}/podgroups"] = [
        group("unknown", None),
        group("late", late),
        group("soon", soon),
        group("runs", None, "Running"),
    ]
    result = command("vcctl", "queue", "view", "-n", "default", "--master", server.url)
    assert (result.returncode, result.stderr) == (0, "")
    rows = [line.split() for line in result.stdout.splitlines() if line.startswith("default/")]
    assert [(row[0], row[1], *row[-2:]) for row in rows] == [
        ("default/soon", "2", "other/first", "room"),
        ("default/late", "2", "soon", "reservation"),
        ("default/unknown", "2", "-", "-"),
    ]
