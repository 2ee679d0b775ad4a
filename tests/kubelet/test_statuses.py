"""The phase and conditions of a pod, by the tables of the reference."""

from __future__ import annotations

import pytest

from hekla.api.kubernetes import core
from hekla.local.kubelet.pods.containers import back_off
from hekla.local.kubelet.pods.statuses import (
    ContainerView,
    Ended,
    PodView,
    conditions,
    container_status,
    phase,
    replacing,
    status,
)

NOW = 1_800_000_000.0


def waiting(name: str = "c") -> ContainerView:
    return ContainerView(name, "busybox", waiting=("ContainerCreating", ""))


def running(name: str = "c", **more: bool) -> ContainerView:
    return ContainerView(name, "busybox", running_since=NOW, ready=True, started=True, **more)


def ended(code: int, name: str = "c", **more: bool) -> ContainerView:
    return ContainerView(name, "busybox", ended=Ended(code, NOW - 1, NOW, "id"), **more)


def crashing(code: int = 1) -> ContainerView:
    view = ended(code)
    view.waiting = ("CrashLoopBackOff", "back-off 10s")
    return view


@pytest.mark.parametrize(
    ("inits", "mains", "policy", "expected"),
    [
        ([], [waiting()], "Never", "Pending"),
        ([], [running()], "Never", "Running"),
        ([], [running(), waiting("d")], "Never", "Pending"),
        ([], [running(), ended(1, "d")], "Never", "Running"),
        ([], [ended(0)], "Never", "Succeeded"),
        ([], [ended(0), ended(2, "d")], "Never", "Failed"),
        ([], [ended(0)], "OnFailure", "Succeeded"),
        ([], [crashing()], "OnFailure", "Running"),
        ([], [ended(0)], "Always", "Running"),
        ([running("i")], [waiting()], "Never", "Pending"),
        ([ended(0, "i")], [running()], "Never", "Running"),
        ([ended(1, "i")], [waiting()], "Never", "Failed"),
        ([ended(1, "i")], [waiting()], "Always", "Pending"),
        ([running("s", sidecar=True)], [running()], "Never", "Running"),
        ([running("s", sidecar=True)], [ended(0)], "Never", "Succeeded"),
    ],
)
def test_phases(
    inits: list[ContainerView], mains: list[ContainerView], policy: str, expected: str
) -> None:
    assert phase(PodView(inits, mains), policy) == expected


def test_a_pod_that_is_stopped_is_judged_as_if_nothing_restarted() -> None:
    assert phase(PodView([], [ended(0)], terminating=True), "Always") == "Succeeded"
    assert phase(PodView([], [ended(143)], terminating=True), "Always") == "Failed"
    assert phase(PodView([], [waiting()], terminating=True), "Always") == "Failed"


def test_a_verdict_beats_everything() -> None:
    assert phase(PodView([], [ended(0)], verdict=("DeadlineExceeded", "late")), "Never") == "Failed"


def made(view: PodView, pod: core.Pod | None = None) -> dict[str, tuple[str, str]]:
    pod = pod or core.Pod()
    found = conditions(pod, view, phase(view, "Never"), pod.status.conditions, NOW)
    return {c["type"]: (c["status"], c.get("reason", "")) for c in found}


def test_conditions_of_a_pod_on_its_way() -> None:
    assert made(PodView([waiting("i")], [waiting()], sandbox=True)) == {
        "PodReadyToStartContainers": ("True", ""),
        "Initialized": ("False", "ContainersNotInitialized"),
        "Ready": ("False", "ContainersNotReady"),
        "ContainersReady": ("False", "ContainersNotReady"),
        "PodScheduled": ("True", ""),
    }
    assert made(PodView([], [running()], sandbox=True))["Ready"] == ("True", "")
    assert made(PodView([], [ended(0)], sandbox=True)) == {
        "PodReadyToStartContainers": ("False", ""),
        "Initialized": ("True", "PodCompleted"),
        "Ready": ("False", "PodCompleted"),
        "ContainersReady": ("False", "PodCompleted"),
        "PodScheduled": ("True", ""),
    }


def test_a_readiness_gate_holds_ready_back() -> None:
    pod = core.Pod(spec=core.PodSpec(readiness_gates=[core.PodReadinessGate(condition_type="x/y")]))
    found = made(PodView([], [running()], sandbox=True), pod)
    assert found["ContainersReady"] == ("True", "") and found["Ready"] == (
        "False",
        "ReadinessGatesNotReady",
    )


def test_the_transition_time_moves_only_with_the_status() -> None:
    old = core.PodCondition(
        type="Ready", status="False", last_transition_time="2020-01-01T00:00:00Z"
    )
    pod = core.Pod(status=core.PodStatus(conditions=[old]))
    still = conditions(pod, PodView([], [waiting()]), "Pending", [old], NOW)
    now = conditions(pod, PodView([], [running()]), "Running", [old], NOW)
    assert (
        next(c for c in still if c["type"] == "Ready")["lastTransitionTime"]
        == "2020-01-01T00:00:00Z"
    )
    assert (
        next(c for c in now if c["type"] == "Ready")["lastTransitionTime"] == "2027-01-15T08:00:00Z"
    )


def test_a_patch_takes_away_what_the_new_condition_has_not() -> None:
    old = core.PodCondition(
        type="Ready", status="False", reason="ContainersNotReady", message="why"
    )
    assert replacing({"type": "Ready", "status": "True"}, old) == {
        "type": "Ready",
        "status": "True",
        "reason": None,
        "message": None,
    }


def test_a_back_off_doubles_up_to_five_minutes_however_often_it_ended() -> None:
    ends = (1, 2, 3, 4, 5, 6, 7, 8, 2000)
    assert [back_off(failures) for failures in ends] == [0, 10, 20, 40, 80, 160, 300, 300, 300]


def test_a_back_off_shows_the_end_before_it() -> None:
    shown = container_status(crashing(3))
    assert shown["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert shown["lastState"]["terminated"]["exitCode"] == 3


def test_container_statuses_are_sorted_and_have_the_fields_that_go_always_writes() -> None:
    pod = core.Pod(spec=core.PodSpec(restart_policy="Never"))
    shown = status(
        pod, PodView([], [waiting("b"), waiting("a")], host_ip="127.0.0.1", started=NOW), [], NOW
    )
    assert [c["name"] for c in shown["containerStatuses"]] == ["a", "b"]
    assert (
        shown["containerStatuses"][0].items()
        >= {"ready": False, "restartCount": 0, "imageID": ""}.items()
    )


def test_who_a_container_is_and_what_it_mounts() -> None:
    view = running()
    assert "user" not in container_status(view)
    view.mounts = [
        core.VolumeMount(name="data", mount_path="/data"),
        core.VolumeMount(name="code", mount_path="/code", read_only=True),
        core.VolumeMount(
            name="all", mount_path="/all", read_only=True, recursive_read_only="IfPossible"
        ),
    ]
    view.user = (1000, 3000, [3000, 4000])
    told = container_status(view)
    assert told["user"] == {"linux": {"uid": 1000, "gid": 3000, "supplementalGroups": [3000, 4000]}}
    assert told["volumeMounts"] == [
        {"name": "data", "mountPath": "/data"},
        {"name": "code", "mountPath": "/code", "readOnly": True, "recursiveReadOnly": "Disabled"},
        {"name": "all", "mountPath": "/all", "readOnly": True, "recursiveReadOnly": "Disabled"},
    ]
