"""`vcctl pod list`: the pods of jobs, with the cells of the usual pod table.  Reference: cli 5."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hekla.api.kubernetes import core
from hekla.cli.vcctl.ages import age
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.connection import Api, Tree
from hekla.cli.vcctl.output import printed

POD = core.POD.untyped
JOB_LABEL = "volcano.sh/job-name"
QUEUE_LABEL = "volcano.sh/queue-name"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"


async def list_pods(api: Api, invocation: Invocation) -> None:
    pods = await _selected(api, invocation)
    if printed(invocation, POD, pods):
        return
    if not pods:
        print("No resources found")
        return
    _print(sorted(pods, key=_key), namespaces=invocation.on("all-namespaces"))


def _key(pod: Tree) -> tuple[str, str]:
    return pod["metadata"].get("namespace") or "", pod["metadata"]["name"]


async def _selected(api: Api, invocation: Invocation) -> list[Tree]:
    job, queue = invocation.text("job"), invocation.text("queue")
    namespace = None if invocation.on("all-namespaces") else invocation.text("namespace")
    if job:
        pods = (await api.list(POD, namespace, labels=f"{JOB_LABEL} in ({job})")).items
        if queue and any(_label(pod, QUEUE_LABEL) not in (None, queue) for pod in pods):
            raise CommandError(f"the input vcjob {job} does not match the queue {queue}")
        return pods
    if queue:
        pods = (await api.list(POD, namespace)).items
        labelled = [pod for pod in pods if _label(pod, QUEUE_LABEL) == queue]
        taken = {_key(pod) for pod in labelled}
        annotated = [
            pod
            for pod in pods
            if (pod["metadata"].get("annotations") or {}).get(QUEUE_ANNOTATION) == queue
        ]
        return [*labelled, *(pod for pod in annotated if _key(pod) not in taken)]
    return (await api.list(POD, namespace, labels=JOB_LABEL)).items


def _label(pod: Tree, key: str) -> str | None:
    return (pod["metadata"].get("labels") or {}).get(key)


def _print(pods: Sequence[Tree], *, namespaces: bool) -> None:
    now = time.time()
    titles = ("Namespace", "Name", "Ready", "Status", "Restart", "Age")
    rows = [
        (pod["metadata"].get("namespace") or "", pod["metadata"]["name"], *cells(pod, now))
        for pod in pods
    ]
    widths = [
        max(len(title) + 2, *(len(row[column]) + 8 for row in rows)) if rows else len(title) + 2
        for column, title in enumerate(titles)
    ]
    for row in (titles, *rows):
        start = 0 if namespaces else 1
        print(
            "".join(
                f"{value:<{width}}" for value, width in list(zip(row, widths, strict=True))[start:]
            )
        )


def cells(pod: Tree, now: float) -> tuple[str, str, str, str]:
    """Ready, status, restarts and age, as in the API server's own table of pods."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    containers, inits = (
        status.get("containerStatuses") or [],
        status.get("initContainerStatuses") or [],
    )
    restartable = {
        container["name"]
        for container in spec.get("initContainers") or []
        if container.get("restartPolicy") == "Always"
    }
    total = len(spec.get("containers") or []) + len(restartable)
    reason = _start_reason(status)
    ready = restarts = restartable_restarts = 0
    finished: list[str] = []
    initializing = False
    for index, init in enumerate(inits):
        restarts += init.get("restartCount") or 0
        finished += _last_end(init)
        state = init.get("state") or {}
        if init.get("name") in restartable:
            restartable_restarts += init.get("restartCount") or 0
        ended = state.get("terminated")
        if ended is not None and not ended.get("exitCode"):
            continue
        if init.get("name") in restartable and init.get("started"):
            ready += bool(init.get("ready"))
            continue
        initializing = True
        waiting = (state.get("waiting") or {}).get("reason") or ""
        if ended is not None:
            reason = f"Init:{_end_reason(ended)}"
        elif waiting and waiting != "PodInitializing":
            reason = f"Init:{waiting}"
        else:
            reason = f"Init:{index}/{len(spec.get('initContainers') or [])}"
        break
    if not initializing or _condition(status, "Initialized"):
        restarts = restartable_restarts
        reason, more_ready, more_restarts, ends = _containers(containers, reason, status)
        ready, restarts, finished = ready + more_ready, restarts + more_restarts, finished + ends
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            reason = "Terminating"
    shown = str(restarts)
    if restarts and finished:
        shown += f" ({age(max(finished), now, whole_years=True)} ago)"
    return (
        f"{ready}/{total}",
        reason,
        shown,
        age(pod["metadata"].get("creationTimestamp"), now, whole_years=True),
    )


def _start_reason(status: Tree) -> str:
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            return "SchedulingGated"
    return str(status.get("reason") or status.get("phase") or "")


def _containers(
    containers: Sequence[Tree], reason: str, status: Tree
) -> tuple[str, int, int, list[str]]:
    ready = restarts = 0
    running = False
    finished: list[str] = []
    for container in reversed(containers):
        restarts += container.get("restartCount") or 0
        finished += _last_end(container)
        state = container.get("state") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif ended is not None:
            reason = _end_reason(ended)
        elif container.get("ready") and state.get("running") is not None:
            running = True
            ready += 1
    if reason == "Completed" and running:
        reason = "Running" if _condition(status, "Ready") else "NotReady"
    return reason, ready, restarts, finished


def _end_reason(ended: Tree) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return (
        f"Signal:{ended['signal']}"
        if ended.get("signal")
        else f"ExitCode:{ended.get('exitCode') or 0}"
    )


def _last_end(container: Tree) -> list[str]:
    when = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt")
    return [when] if when else []


def _condition(status: Tree, type_: str) -> bool:
    return any(
        condition.get("type") == type_ and condition.get("status") == "True"
        for condition in status.get("conditions") or []
    )
