"""The status of a pod from what its containers do: phase, conditions, container statuses.  Pure;
the tables of local-cluster 8.3, 8.4."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hekla.api.kubernetes import core
from hekla.api.text.times import stamp
from hekla.api.trees import Json

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
FINAL = (SUCCEEDED, FAILED)
RESIZE_PENDING, RESIZE_IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
RESIZE_CONDITIONS = frozenset((RESIZE_PENDING, RESIZE_IN_PROGRESS))


@dataclass(slots=True)
class Ended:
    """How an instance of a container ended."""

    code: int
    started: float
    finished: float
    id: str
    reason: str = ""
    message: str = ""


@dataclass(slots=True)
class ContainerView:
    """One container as the kubelet knows it.  Running when `running_since` is set, else ended, else
    waiting."""

    name: str
    image: str
    image_id: str = ""
    id: str = ""
    waiting: tuple[str, str] | None = None
    """(reason, message); shown unless it runs, so a back-off hides the end that caused it."""
    running_since: float | None = None
    ended: Ended | None = None
    """The end of the newest instance."""
    last: Ended | None = None
    """The end of the instance before it."""
    restarts: int = 0
    ready: bool = False
    started: bool = False
    sidecar: bool = False
    policy: str = ""
    """The container's own restart policy; empty for the pod's."""
    rules: Sequence[core.ContainerRestartRule] = ()
    """What decides before the policy, by exit code."""
    resources: core.ResourceRequirements | None = None
    mounts: Sequence[core.VolumeMount] = ()
    user: tuple[int, int, list[int]] | None = None
    """(user, group, all groups) of its first process; None before there was one."""

    def again(self, pod_policy: str, code: int) -> bool:
        """Whether it runs again after an end with this code, in a pod of this restart policy."""
        for rule in self.rules:
            codes = rule.exit_codes
            if (
                rule.action == "Restart"
                and codes is not None
                and (code in codes.values) == (codes.operator == "In")
            ):
                return True
        return restarts(self.policy or pod_policy, code)

    @property
    def done(self) -> bool:
        return self.running_since is None and self.ended is not None


@dataclass(slots=True)
class PodView:
    """A pod as the kubelet knows it."""

    inits: list[ContainerView] = field(default_factory=list)
    mains: list[ContainerView] = field(default_factory=list)
    ephemeral: list[ContainerView] = field(default_factory=list)
    """Ephemeral containers; the pod's phase does not depend on them."""
    sandbox: bool = False
    """It has its address, files and hosts file."""
    started: float = 0.0
    pod_ip: str = ""
    host_ip: str = ""
    verdict: tuple[str, str] | None = None
    """(reason, message) of a pod that failed as a whole: deadline, eviction."""
    terminating: bool = False
    disrupted: str = ""
    """Why the node ended the pod before its time."""
    resize: tuple[str, str, str] | None = None
    """(condition, reason, message) of a change of size that could not be made yet."""


def restarts(policy: str, code: int) -> bool:
    """Whether a container that ended with this code runs again."""
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def phase(view: PodView, policy: str) -> str:
    """The phase by the table of 8.3; a pod that is being stopped is judged as if nothing restarted."""
    if view.verdict is not None:
        return FAILED
    stopping = view.terminating
    for init in view.inits:
        if init.sidecar:
            if not init.started and init.running_since is None and init.ended is None:
                return stopped_before_start(view)
        elif init.running_since is not None or init.ended is None:
            return stopped_before_start(view)
        elif init.ended.code != 0:
            return (
                PENDING
                if not stopping
                and init.again(policy if policy != "Always" else "OnFailure", init.ended.code)
                else FAILED
            )
    if any(c.running_since is None and c.ended is None and c.last is None for c in view.mains):
        return stopped_before_start(view)
    if any(c.running_since is not None for c in view.mains):
        return RUNNING
    ends = [(c, end.code) for c in view.mains if (end := c.ended or c.last) is not None]
    if not stopping and any(c.again(policy, code) for c, code in ends):
        return RUNNING
    return SUCCEEDED if not any(code for _, code in ends) else FAILED


def stopped_before_start(view: PodView) -> str:
    """Not everything has started: pending, unless nothing will start any more."""
    everything = [*view.inits, *view.mains]
    if view.terminating and not any(c.running_since is not None for c in everything):
        return FAILED
    return PENDING


def state(view: ContainerView) -> Json:
    """The member `state` of a container status."""
    if view.running_since is not None:
        return {"running": {"startedAt": stamp(view.running_since)}}
    if view.waiting is not None:
        reason, message = view.waiting
        return {
            "waiting": {"reason": reason, "message": message} if message else {"reason": reason}
        }
    if view.ended is not None:
        return {"terminated": terminated(view.ended)}
    return {"waiting": {"reason": "ContainerCreating"}}


def terminated(end: Ended) -> Json:
    found: Json = {
        "exitCode": end.code,
        "reason": end.reason or ("Completed" if end.code == 0 else "Error"),
        "startedAt": stamp(end.started),
        "finishedAt": stamp(end.finished),
        "containerID": end.id,
    }
    if end.message:
        found["message"] = end.message
    return found


def container_status(view: ContainerView) -> Json:
    """One entry of containerStatuses."""
    now = state(view)
    previous = view.last if view.ended is None or "terminated" in now else view.ended
    found: Json = {
        "name": view.name,
        "state": now,
        "lastState": {"terminated": terminated(previous)} if previous else {},
        "ready": view.ready,
        "started": view.started and view.running_since is not None,
        "restartCount": view.restarts,
        "image": view.image,
        "imageID": view.image_id,
    }
    if view.id:
        found["containerID"] = view.id
    if view.resources is not None and (
        view.resources.limits or view.resources.requests or view.running_since is not None
    ):
        given = view.resources
        found["resources"] = {
            **({"limits": given.limits} if given.limits else {}),
            **({"requests": given.requests} if given.requests else {}),
        }
        if given.requests:
            found["allocatedResources"] = given.requests
    if view.user is not None:
        user, group, groups = view.user
        found["user"] = {"linux": {"uid": user, "gid": group, "supplementalGroups": groups}}
        if view.mounts:
            found["volumeMounts"] = [mounted(mount) for mount in view.mounts]
    return found


def mounted(mount: core.VolumeMount) -> Json:
    """A volume as the container has it.  What is mounted below a read-only one stays as it is
    (spawner), whatever was asked for."""
    found: Json = {"name": mount.name, "mountPath": mount.mount_path}
    if mount.read_only:
        found |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
    return found


def condition(
    kind: str,
    true: bool,
    reason: str,
    message: str,
    old: dict[str, core.PodCondition],
    generation: int,
    now: float,
) -> Json:
    """A condition whose transition time moves only when its status does."""
    status = "True" if true else "False"
    before = old.get(kind)
    since = (
        before.last_transition_time
        if before is not None and before.status == status
        else stamp(now)
    )
    found: Json = {
        "type": kind,
        "status": status,
        "lastProbeTime": None,
        "lastTransitionTime": since,
    }
    if reason:
        found["reason"] = reason
    if message:
        found["message"] = message
    if generation:
        found["observedGeneration"] = generation
    return found


def replacing(new: Json, old: core.PodCondition | None) -> Json:
    """A condition as a strategic merge patch must word it: what the old one had and the new one has
    not is taken away."""
    gone = {
        member: None
        for member in ("reason", "message")
        if member not in new and old is not None and getattr(old, member)
    }
    return {**new, **gone}


def names(text: str, views: Iterable[ContainerView]) -> str:
    return f"{text}: [{' '.join(view.name for view in views)}]"


def conditions(
    pod: core.Pod, view: PodView, now_phase: str, old: Sequence[core.PodCondition], now: float
) -> list[Json]:
    """The conditions that are the kubelet's to report."""
    before = {c.type: c for c in old}
    generation = pod.metadata.generation

    def make(kind: str, true: bool, reason: str = "", message: str = "") -> Json:
        return condition(kind, true, reason, message, before, generation, now)

    final = {SUCCEEDED: "PodCompleted", FAILED: "PodFailed"}.get(now_phase, "")
    incomplete = [
        c
        for c in view.inits
        if (
            not c.started
            if c.sidecar
            else c.running_since is not None or c.ended is None or c.ended.code != 0
        )
    ]
    watched = [*view.mains, *(c for c in view.inits if c.sidecar)]
    unready = [c for c in watched if not c.ready]
    found = []
    alive = any(c.running_since is not None for c in [*view.inits, *view.mains])
    found.append(make("PodReadyToStartContainers", view.sandbox and (not final or alive)))
    if now_phase == SUCCEEDED:
        found.append(make("Initialized", True, "PodCompleted"))
    elif incomplete:
        found.append(
            make(
                "Initialized",
                False,
                "ContainersNotInitialized",
                names("containers with incomplete status", incomplete),
            )
        )
    else:
        found.append(make("Initialized", True))
    if final:
        found.append(make("Ready", False, final))
        found.append(make("ContainersReady", False, final))
    else:
        if unready:
            why = ("ContainersNotReady", names("containers with unready status", unready))
            found.append(make("Ready", False, *why))
            found.append(make("ContainersReady", False, *why))
        else:
            missing = [
                gate.condition_type
                for gate in pod.spec.readiness_gates
                if before.get(gate.condition_type) is None
                or before[gate.condition_type].status != "True"
            ]
            if missing:
                said = [
                    f'corresponding condition of pod readiness gate "{name}" '
                    + (
                        "does not exist."
                        if name not in before
                        else f'has status "{before[name].status}" instead of "True"'
                    )
                    for name in missing
                ]
                found.append(make("Ready", False, "ReadinessGatesNotReady", ", ".join(said)))
            else:
                found.append(make("Ready", True))
            found.append(make("ContainersReady", True))
    if view.disrupted:
        found.append(make("DisruptionTarget", True, "TerminationByKubelet", view.disrupted))
    if view.resize is not None:
        found.append(make(view.resize[0], True, *view.resize[1:]))
    if "PodScheduled" not in before or before["PodScheduled"].status != "True":
        found.append(make("PodScheduled", True))
    return found


def status(pod: core.Pod, view: PodView, old: Sequence[core.PodCondition], now: float) -> Json:
    """The whole of what the kubelet reports, as the `status` of a strategic merge patch."""
    now_phase = phase(view, pod.spec.restart_policy)
    found: Json = {
        "phase": now_phase,
        "conditions": conditions(pod, view, now_phase, old, now),
        "hostIP": view.host_ip,
        "hostIPs": [{"ip": view.host_ip}],
        "startTime": stamp(view.started),
        "containerStatuses": [
            container_status(c) for c in sorted(view.mains, key=lambda c: c.name)
        ],
    }
    if view.inits:
        found["initContainerStatuses"] = [container_status(c) for c in view.inits]
    if view.ephemeral:
        found["ephemeralContainerStatuses"] = [container_status(c) for c in view.ephemeral]
    if view.pod_ip:
        found["podIP"] = view.pod_ip
        found["podIPs"] = [{"ip": view.pod_ip}]
    if view.verdict is not None:
        found["reason"], found["message"] = view.verdict
    if pod.metadata.generation:
        found["observedGeneration"] = pod.metadata.generation
    return found


def rejected(reason: str, message: str, now: float) -> Json:
    """The status of a pod that the node does not admit."""
    return {"phase": FAILED, "reason": reason, "message": message, "startTime": stamp(now)}
