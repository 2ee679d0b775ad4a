"""`vcctl job logs`: the logs of a job's pods, each line after its pod's name where there are
several.  Hekla's own."""

from __future__ import annotations

import asyncio
import sys

from hekla.api import batch, names
from hekla.api.kubernetes import core
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.connection import Api, Tree, find, name_of
from hekla.kube.errors import ApiError

JOB = batch.JOB.untyped
POD = core.POD.untyped


async def logs(api: Api, invocation: Invocation) -> None:
    name = name_of(invocation, "job name is mandatory to print the logs of a particular job")
    namespace, task = invocation.text("namespace"), invocation.text("task")
    await find(api, JOB, name, namespace)
    selector = f"{names.JOB_NAME}={name}" + (f",{names.TASK_SPEC}={task}" if task else "")
    pods = (await api.list(POD, namespace, labels=selector)).items
    if not pods:
        raise CommandError(f"job {name} has no pods" + (f" of the task {task}" if task else ""))
    streams = [(pod, container["name"]) for pod in pods for container in pod["spec"]["containers"]]
    several = len(streams) > 1
    if invocation.on("follow"):
        await asyncio.gather(
            *(_print(api, pod, container, invocation, several) for pod, container in streams)
        )
        return
    for pod, container in streams:
        await _print(api, pod, container, invocation, several)


async def _print(
    api: Api, pod: Tree, container: str, invocation: Invocation, several: bool
) -> None:
    name = pod["metadata"]["name"]
    query = {"container": container, "follow": str(invocation.on("follow")).lower()}
    if invocation.number("tail") >= 0:
        query["tailLines"] = str(invocation.number("tail"))
    label = name if len(pod["spec"]["containers"]) == 1 else f"{name}/{container}"
    try:
        stream = await api.stream("GET", POD.path(pod["metadata"]["namespace"], name, "log"), query)
    except ApiError as error:
        print(f"[{label}] {error.message}", file=sys.stderr)
        return
    rest = b""
    async with stream:
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                _write(line, label, several)
    if rest:
        _write(rest, label, several)


def _write(line: bytes, label: str, several: bool) -> None:
    front = f"[{label}] ".encode() if several else b""
    sys.stdout.buffer.write(front + line + b"\n")
    sys.stdout.buffer.flush()
