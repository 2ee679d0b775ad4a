"""`vcctl pod list`: the pods of jobs, with the cells of the usual pod table.  Reference: cli 5."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hekla.api import names
from hekla.api.kubernetes import core
from hekla.api.text.ages import age
from hekla.api.text.podsummary import summary
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.connection import Api, Tree
from hekla.cli.vcctl.output import printed

POD = core.POD.untyped


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
        pods = (await api.list(POD, namespace, labels=f"{names.JOB_NAME} in ({job})")).items
        if queue and any(_label(pod, names.QUEUE_NAME) not in (None, queue) for pod in pods):
            raise CommandError(f"the input vcjob {job} does not match the queue {queue}")
        return pods
    if queue:
        pods = (await api.list(POD, namespace)).items
        labelled = [pod for pod in pods if _label(pod, names.QUEUE_NAME) == queue]
        taken = {_key(pod) for pod in labelled}
        annotated = [
            pod
            for pod in pods
            if (pod["metadata"].get("annotations") or {}).get(names.GROUP_QUEUE_NAME) == queue
        ]
        return [*labelled, *(pod for pod in annotated if _key(pod) not in taken)]
    return (await api.list(POD, namespace, labels=names.JOB_NAME)).items


def _label(pod: Tree, key: str) -> str | None:
    return (pod["metadata"].get("labels") or {}).get(key)


def _print(pods: Sequence[Tree], *, namespaces: bool) -> None:
    now = time.time()
    titles = ("Namespace", "Name", "Ready", "Status", "Restart", "Age")
    rows = []
    for pod in pods:
        metadata, seen = pod["metadata"], summary(pod)
        created = age(metadata.get("creationTimestamp"), now)
        cells = (seen.readiness(), seen.status, seen.restarts_text(now), created)
        rows.append((metadata.get("namespace") or "", metadata["name"], *cells))
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
