"""Whether a job that another waits for is ready before it has completed: `dependsOn.probe`.

Volcano stores probes and ignores them.  Here every probe has to succeed: a task's pods have to be
in a phase, accept a connection, or answer an HTTP request with a success.  All pods of the task are
asked, within a short time, in every reconcile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from hekla.api import batch, flow, names
from hekla.api.kubernetes import core
from hekla.kube.client import Client

TIMEOUT = 2.0
"""Seconds that a pod has for its answer."""
PERIOD = 1.0
"""Seconds after which failed probes are asked again."""


def asked(probe: flow.Probe | None) -> bool:
    """Whether any probe has to be asked."""
    return probe is not None and bool(
        probe.http_get_list or probe.tcp_socket_list or probe.task_status_list
    )


def in_phase(job: batch.Job, wanted: Iterable[flow.TaskStatus]) -> bool:
    """Whether as many pods of each task as it needs are in the requested phase."""
    for each in wanted:
        task = next((task for task in job.spec.tasks if task.name == each.task_name), None)
        if task is None:
            return False
        counted = job.status.task_status_count.get(task.name)
        there = counted.phase.get(each.phase, 0) if counted else 0
        if there < (task.replicas if task.min_available is None else task.min_available):
            return False
    return True


async def answered(client: Client, job: batch.Job, probe: flow.Probe) -> bool:
    """Whether every probe of a job succeeds now."""
    if not in_phase(job, probe.task_status_list):
        return False
    questions = [
        *((tcp.task_name, tcp.port, None) for tcp in probe.tcp_socket_list),
        *((http.task_name, http.port, http) for http in probe.http_get_list),
    ]
    if not questions:
        return True
    labels = f"{names.JOB_NAME}={job.metadata.name}"
    pods = (await client.list(core.POD.untyped, job.metadata.namespace, labels=labels)).items
    answers = await asyncio.gather(
        *(_ask(_addresses(pods, task), port, http) for task, port, http in questions)
    )
    return all(answers)


def _addresses(pods: list[dict[str, Any]], task: str) -> list[str]:
    mine = [
        pod for pod in pods if (pod["metadata"].get("labels") or {}).get(names.TASK_SPEC) == task
    ]
    return [str((pod.get("status") or {}).get("podIP") or "") for pod in mine]


async def _ask(addresses: list[str], port: int, http: flow.HttpGet | None) -> bool:
    if not addresses or not all(addresses):
        return False
    return all(await asyncio.gather(*(_one(address, port, http) for address in addresses)))


async def _one(address: str, port: int, http: flow.HttpGet | None) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection(address, port)
            try:
                if http is None:
                    return True
                writer.write(request_of(http, address))
                await writer.drain()
                return _succeeded(await reader.readline())
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


def request_of(http: flow.HttpGet, address: str) -> bytes:
    """The bytes of the request that asks a pod."""
    headers: Mapping[str, str] = {"Host": f"{address}:{http.port}", "Connection": "close"}
    if http.http_header is not None:
        headers = {**headers, http.http_header.name: http.http_header.value}
    lines = [
        f"GET /{http.path.removeprefix('/')} HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _succeeded(first_line: bytes) -> bool:
    parts = first_line.split()
    return len(parts) > 1 and parts[1].isdigit() and 200 <= int(parts[1]) < 400
