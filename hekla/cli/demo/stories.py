"""The demo's stories: each creates what a user would, watches what happens, and returns what it
saw.

A story raises `Differs` with what it saw instead as soon as that cannot become right any more, or
when its time is up.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from hekla.api import batch, meta, scheduling
from hekla.api.kubernetes import core
from hekla.cli.demo import manifests
from hekla.kube.client import Client
from hekla.kube.errors import NotFound

T = TypeVar("T")

NAMESPACE = "default"
JOB_OF_POD = "volcano.sh/job-name"
TASK_OF_POD = "volcano.sh/task-spec"


class Differs(Exception):
    """What was seen instead of what was expected."""


async def until(what: str, look: Callable[[], Awaitable[T | None]], seconds: float = 20.0) -> T:
    """Poll until there is an answer.  Raises Differs when time is up."""
    deadline = time.monotonic() + seconds
    while (seen := await look()) is None:
        if time.monotonic() > deadline:
            raise Differs(f"after {seconds:.0f} s: not {what}")
        await asyncio.sleep(0.05)
    return seen


async def pods_of(client: Client, job: str) -> list[core.Pod]:
    return list((await client.list(core.POD, NAMESPACE, labels=f"{JOB_OF_POD}={job}")).items)


async def phase_of(client: Client, job: str) -> str:
    return (await client.get(batch.JOB, job, NAMESPACE)).status.state.phase


async def job_reaches(client: Client, job: str, phase: str, seconds: float = 20.0) -> None:
    """Wait for a job's phase; raises Differs at once if the job ends in another one."""

    async def look() -> bool | None:
        now = await phase_of(client, job)
        if now != phase and now in ("Failed", "Aborted", "Terminated", "Completed"):
            raise Differs(f"job {job} is {now}, not {phase}")
        return True if now == phase else None

    await until(f"{job} {phase}", look, seconds)


async def group_of(client: Client, job: str) -> scheduling.PodGroup | None:
    """The PodGroup of the job."""
    groups = (await client.list(scheduling.POD_GROUP, NAMESPACE)).items
    return next(
        (g for g in groups if any(o.name == job for o in g.metadata.owner_references)), None
    )


async def remove(client: Client, *jobs: str) -> None:
    """Delete jobs and wait until their pods are gone, so that the next story has all nodes."""
    for job in jobs:
        try:
            await client.delete(batch.JOB, job, NAMESPACE)
        except NotFound:
            continue
    for job in jobs:
        for pod in await pods_of(client, job):
            try:
                await client.delete(core.POD, pod.metadata.name, NAMESPACE, grace=0)
            except NotFound:
                continue

        async def gone(job: str = job) -> bool | None:
            return None if await pods_of(client, job) else True

        await until(f"every pod of {job} gone", gone)


async def hello(client: Client) -> str:
    """One pod prints a line and ends."""
    await client.create(batch.JOB, manifests.hello(), NAMESPACE)
    await job_reaches(client, "hello", "Running")
    await job_reaches(client, "hello", "Completed")
    (pod,) = await pods_of(client, "hello")
    log = await client.request("GET", core.POD.path(NAMESPACE, pod.metadata.name, "log"))
    line = log.body.decode().strip()
    await remove(client, "hello")
    if line != "Hello from Hekla!":
        raise Differs(f"the log of {meta.key(pod)} is {line!r}")
    return f'Running, then Completed; {pod.metadata.name} printed "{line}"'


async def two_queues(client: Client) -> str:
    """Two queues, each with work for the whole cluster, share it by weight when it opens."""
    nodes = sorted(node.metadata.name for node in (await client.list(core.NODE)).items)
    await cordon(client, nodes, True)
    for name, weight in (("queue-a", 1), ("queue-b", 2)):
        await client.create(scheduling.QUEUE, manifests.queue(name, weight))
        await until(f"queue {name} Open", partial(is_open, client, name))
    jobs = manifests.weighted()
    names = [job["metadata"]["name"] for job in jobs]
    for job in jobs:
        await client.create(batch.JOB, job, NAMESPACE)

    async def count(wanted: Callable[[core.Pod], bool]) -> tuple[int, int]:
        """How many of queue-a's pods, and of queue-b's, are wanted."""
        pods = [pod for pod in (await client.list(core.POD, NAMESPACE)).items if wanted(pod)]
        of_jobs = [pod.metadata.labels.get(JOB_OF_POD, "") for pod in pods]
        return sum(name.startswith("job-a-") for name in of_jobs), sum(
            name.startswith("job-b-") for name in of_jobs
        )

    async def all_wait() -> bool | None:
        return True if await count(lambda pod: pod.status.phase == "Pending") == (48, 48) else None

    await until("48 pods waiting in each queue", all_wait)
    await cordon(client, nodes, False)

    async def full() -> tuple[int, int] | None:
        # By their bindings: on a slow machine the first of them has ended before the last one runs.
        bound = await count(lambda pod: bool(pod.spec.node_name))
        return bound if sum(bound) >= 48 else None

    a, b = await until("48 pods bound", full)
    for name in names:
        await job_reaches(client, name, "Completed", 40)
    await remove(client, *names)
    if (a, b) != (16, 32):
        raise Differs(f"{a} pods of queue-a beside {b} of queue-b")
    return "16 pods of queue-a beside 32 of queue-b; then all 12 jobs completed"


async def is_open(client: Client, queue: str) -> bool | None:
    return True if (await client.get(scheduling.QUEUE, queue)).status.state == "Open" else None


async def cordon(client: Client, nodes: list[str], closed: bool) -> None:
    """Cordon or uncordon the nodes."""
    await asyncio.gather(
        *(client.patch(core.NODE, node, {"spec": {"unschedulable": closed}}) for node in nodes)
    )


async def gang(client: Client) -> str:
    """A gang that does not fit waits as a whole and says why; a smaller one starts."""
    await client.create(batch.JOB, manifests.gang("gang-20", 20), NAMESPACE)

    async def reason() -> str | None:
        group = await group_of(client, "gang-20")
        said = (
            [c.message for c in group.status.conditions if c.type == "Unschedulable" and c.message]
            if group
            else []
        )
        return said[-1] if said else None

    why = await until("a reason on the PodGroup", reason)
    bound = [pod.metadata.name for pod in await pods_of(client, "gang-20") if pod.spec.node_name]
    for _ in range(10):
        # A reason that is true keeps the gang waiting; one that is not would let it start now.
        await asyncio.sleep(0.1)
        bound += [
            pod.metadata.name for pod in await pods_of(client, "gang-20") if pod.spec.node_name
        ]
    await remove(client, "gang-20")
    if bound:
        raise Differs(f"{len(set(bound))} pods of the gang of 20 were started")
    await client.create(batch.JOB, manifests.gang("gang-4", 4), NAMESPACE)

    async def four_run() -> int | None:
        running = sum(pod.status.phase == "Running" for pod in await pods_of(client, "gang-4"))
        return running if running >= 4 else None

    running = await until("4 pods of gang-4 running", four_run)
    await remove(client, "gang-4")
    return f"0 of 20 started: {why}  With minAvailable 4, {running} run"


async def dependency(client: Client) -> str:
    """task-b has no pod before task-a runs."""
    await client.create(batch.JOB, manifests.workflow(), NAMESPACE)
    early: list[str] = []

    async def second_made() -> bool | None:
        pods = {
            pod.metadata.annotations.get(TASK_OF_POD, ""): pod
            for pod in await pods_of(client, "workflow")
        }
        first, second = pods.get("task-a"), pods.get("task-b")
        if second is not None and (
            first is None or first.status.phase not in ("Running", "Succeeded")
        ):
            early.append(second.metadata.name)
        return True if second is not None else None

    await until("a pod of task-b", second_made)
    await job_reaches(client, "workflow", "Completed")
    await remove(client, "workflow")
    if early:
        raise Differs(f"{early[0]} existed before task-a ran")
    return "task-a ran before task-b's pod was made; the job Completed"


async def allreduce(client: Client) -> str:
    """Four pods sum a vector round a ring of sockets."""
    await client.create(batch.JOB, manifests.allreduce(), NAMESPACE)
    try:
        await job_reaches(client, "allreduce", "Completed", 40)
    except Differs as differs:
        raise Differs(f"{differs}; {await last_lines(client, 'allreduce')}") from differs
    pods = await pods_of(client, "allreduce")
    codes = {
        s.state.terminated.exit_code
        for p in pods
        for s in p.status.container_statuses
        if s.state.terminated
    }
    lines = await last_lines(client, "allreduce")
    await remove(client, "allreduce")
    if codes != {0} or len(pods) != 4:
        raise Differs(f"{len(pods)} pods, exit codes {sorted(codes)}; {lines}")
    return "4 pods, all exit 0; " + lines.splitlines()[0]


async def last_lines(client: Client, job: str) -> str:
    """The last line of each pod's log."""
    lines = []
    for pod in sorted(await pods_of(client, job), key=lambda pod: pod.metadata.name):
        log = await client.request(
            "GET", core.POD.path(NAMESPACE, pod.metadata.name, "log"), query={"tailLines": "1"}
        )
        lines.append(log.body.decode(errors="replace").strip())
    return "\n".join(lines)
