"""The statuses of pods on fake nodes: what KWOK's stages would report, and how each pod lives.  Pure.
Reference: local-cluster 9.2."""

from __future__ import annotations

import zlib
from functools import lru_cache

from hekla.api.trees import Json
from hekla.local.kubelet.nodes.fake_objects import FakeContainer, FakePod
from hekla.local.kubelet.nodes.simulated_life import RESTING, Plan, plan
from hekla.local.kubelet.pods.images import ImageError, Images, parse

NEVER = 1e8
"""Seconds: longer than any cluster lives."""


def conditions(pod: FakePod, ready: bool, reason: str, now: str) -> list[Json]:
    """The pod's conditions, all alike but Initialized."""
    state: Json = {
        "status": "True" if ready else "False",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    if reason or started_before(pod):
        state["reason"] = reason or None
    found: list[Json] = [{**state, "type": kind} for kind in ("Ready", "ContainersReady")]
    if ready:
        found += [{**state, "type": kind} for kind in ("Initialized", "PodReadyToStartContainers")]
        found += [{**state, "type": gate.condition_type} for gate in pod.spec.readiness_gates or ()]
    elif reason == "PodCompleted":
        found.append({**state, "type": "Initialized", "status": "True"})
    return found


def started_before(pod: FakePod) -> bool:
    """Whether its conditions may hold a reason that must be taken away."""
    return bool(pod.status.container_statuses)


def container_status(
    container: FakeContainer,
    uid: str,
    state: Json,
    *,
    ready: bool,
    count: int,
    last: Json | None = None,
) -> Json:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": ready,
        "started": ready,
        "restartCount": count,
        "state": state,
        "lastState": last or {},
        "containerID": f"kwok://{uid}/{container.name}",
    }


def running_status(pod: FakePod, address: str, count: int, last: Json | None, now: str) -> Json:
    """What the stage pod-ready reports."""
    uid = pod.metadata.uid
    running = {"running": {"startedAt": now}}
    status: Json = {
        "phase": "Running",
        "hostIP": "10.0.0.1",
        "hostIPs": [{"ip": "10.0.0.1"}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": pod.status.start_time or now,
        "conditions": conditions(pod, True, "", now),
        "containerStatuses": [
            container_status(c, uid, running, ready=True, count=count, last=last)
            for c in pod.spec.containers
        ],
    }
    if pod.spec.init_containers:
        done = {
            "terminated": {
                "exitCode": 0,
                "reason": "Completed",
                "startedAt": now,
                "finishedAt": now,
            }
        }
        status["initContainerStatuses"] = [
            container_status(
                c, uid, running if c.restart_policy == "Always" else done, ready=True, count=0
            )
            for c in pod.spec.init_containers
        ]
    return status


def terminated(life: Plan, started: str, now: str) -> Json:
    reason = life.reason or ("Error" if life.code else "Completed")
    end: Json = {"exitCode": life.code, "reason": reason, "startedAt": started, "finishedAt": now}
    if life.message:
        end["message"] = life.message
    return {"terminated": end}


def ended_status(pod: FakePod, life: Plan, count: int, now: str) -> Json:
    """What the stage pod-complete reports, or its failing counterpart."""
    state = terminated(life, started_at(pod) or now, now)
    named = any(c.name == life.container for c in pod.spec.containers)
    # The others end with the one that failed.
    other = terminated(Plan(code=143), started_at(pod) or now, now) if named else state
    return {
        "phase": "Failed" if life.code else "Succeeded",
        "conditions": conditions(pod, False, "PodFailed" if life.code else "PodCompleted", now),
        "containerStatuses": [
            container_status(
                c,
                pod.metadata.uid,
                state if c.name == life.container else other,
                ready=False,
                count=count,
            )
            for c in pod.spec.containers
        ],
    }


def started_at(pod: FakePod) -> str:
    """When the pod's container started, as its status says; "" while it does not run."""
    for status in pod.status.container_statuses or ():
        if status.state is not None and status.state.running is not None:
            return status.state.running.started_at
    return ""


def restart_count(pod: FakePod) -> int:
    return max((status.restart_count for status in pod.status.container_statuses or ()), default=0)


@lru_cache(maxsize=1024)
def is_refused(image: str) -> bool:
    """Whether no registry has an image."""
    try:
        row = Images().row(parse(image))
    except ImageError:
        return False
    return row is not None and row.refuse


def life_of(pod: FakePod) -> Plan:
    if any(is_refused(c.image) for c in pod.spec.containers if c.image):
        return Plan(delay=NEVER)  # as on a real node, where the image cannot be pulled
    commands = [
        [*(c.command or ()), *(c.args or ())] if c.command else [] for c in pod.spec.containers
    ]
    # The same value after a restart of the kubelet.
    luck = zlib.crc32(pod.metadata.uid.encode()) / 0xFFFFFFFF
    rests = any(not c.command and RESTING.search(c.image) for c in pod.spec.containers)
    return plan(
        pod.metadata.annotations or {}, pod.metadata.labels or {}, commands, luck=luck, rests=rests
    )
