"""The batch controllers alone, the admission server alone, and the command line over many jobs.

`control.*`: an API server, the controllers and fake nodes, each a process; the scheduler's part
(letting PodGroups in, binding) is done by this program, with as few requests as it takes, so that
what is measured is the controllers.  API writes are counted in the server's audit log, by who made
them.
"""

from __future__ import annotations

import asyncio
import base64
import json
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil
import uvloop

from benchmarks.clusters import api_server, hekla
from benchmarks.end_to_end import Pods, job
from benchmarks.figure import Figure
from hekla.api import batch, crds, scheduling
from hekla.api.kubernetes import core
from hekla.api.kubernetes.apiextensions import CUSTOM_RESOURCE_DEFINITION
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.http.client import TransportError
from hekla.local.cluster.cluster import Cluster

JOBS, TASKS, NODES = 500, 20, 100
TOTAL = JOBS * TASKS
LISTED = 10_000
CONTROL = ("control.create", "control.calls", "control.rss")
ADMISSION = ("admission.reviews", "admission.p99")
FIGURES = (*CONTROL, *ADMISSION, "cli.list.10000")


def measure(names: set[str]) -> Iterator[Figure]:
    if names & set(CONTROL):
        yield from (figure for figure in uvloop.run(control(names)) if figure.name in names)
    if names & set(ADMISSION):
        yield from (figure for figure in uvloop.run(admission()) if figure.name in names)
    if "cli.list.10000" in names:
        yield uvloop.run(listing())


@contextmanager
def program(made: Cluster, name: str, *flags: str) -> Iterator[psutil.Process]:
    """One of Hekla's daemons over the cluster's internal door."""
    with open(made.logs / f"{name}.log", "wb") as log:
        process = subprocess.Popen(
            hekla(name, f"--kubeconfig={made.internal_kubeconfig}", *flags), stdout=log, stderr=log
        )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait(20)


async def install(client: Client) -> None:
    """Kinds and queues."""
    for definition in crds.all():
        await client.create(CUSTOM_RESOURCE_DEFINITION.untyped, definition)
    for name in ("root", "default"):
        for _ in range(100):
            try:
                await client.create(
                    scheduling.QUEUE.untyped, {"metadata": {"name": name}, "spec": {"weight": 1}}
                )
                break
            except ApiError:
                await asyncio.sleep(0.1)
        await client.patch(
            scheduling.QUEUE.untyped, name, {"status": {"state": "Open"}}, subresource="status"
        )


class Scheduler:
    """Lets every PodGroup in and binds every pod to the next node: two writes that are nobody's
    else."""

    def __init__(self, client: Client, nodes: list[str]) -> None:
        self._client = client
        self._nodes = nodes
        self._next = 0
        self._groups = Cache(client, scheduling.POD_GROUP)
        self._groups.on_change(self._let_in)
        self._work: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(48)

    async def __aenter__(self) -> Scheduler:
        await self._groups.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._groups.stop()
        for task in self._work:
            task.cancel()

    def _let_in(self, old: scheduling.PodGroup | None, new: scheduling.PodGroup | None) -> None:
        if new is not None and new.status.phase in ("", "Pending"):
            self._soon(self._inqueue(new))

    async def _inqueue(self, group: scheduling.PodGroup) -> None:
        patch = {"status": {"phase": "Inqueue"}}
        await self._client.patch(
            scheduling.POD_GROUP.untyped, group.metadata.name, patch, group.metadata.namespace
        )

    def pod(self, old: Any, new: Any) -> None:
        """Called with each change of a pod."""
        if new is not None and old is None and not new.spec.node_name:
            self._next += 1
            self._soon(
                self._bind(
                    new.metadata.namespace,
                    new.metadata.name,
                    self._nodes[self._next % len(self._nodes)],
                )
            )

    async def _bind(self, namespace: str, name: str, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await self._client.post(core.POD, name, namespace, "binding", body)

    def _soon(self, work: Any) -> None:
        async def bounded() -> None:
            async with self._room:
                await work

        task = asyncio.get_running_loop().create_task(bounded())
        self._work.add(task)
        task.add_done_callback(self._work.discard)


async def control(names: set[str]) -> list[Figure]:
    """The speed first, then the same with an audit log, which counts writes and costs time."""
    figures: list[Figure] = []
    if names & {"control.create", "control.rss"}:
        with api_server() as (made, _):
            run = await lives(made)
        figures += [
            Figure(
                "control.create",
                TOTAL / run.created,
                "pods/s",
                f"{JOBS} jobs of {TASKS}; all pods after {run.created:.2f} s, all jobs Running after {run.running:.2f} s; "
                f"{run.cpu:.1f} s of the controllers' CPU",
            ),
            Figure("control.rss", run.resident, "MB", f"{JOBS} jobs, {TOTAL} pods"),
        ]
    if "control.calls" in names:
        with tempfile.TemporaryDirectory() as directory:
            policy, log = Path(directory) / "policy.yaml", Path(directory) / "audit.log"
            policy.write_text(AUDIT)
            with api_server(f"--audit-log-path={log}", f"--audit-policy-file={policy}") as (
                made,
                _,
            ):
                await lives(made)
            own = writes(log)
        by_kind = ", ".join(f"{count} {name}" for name, count in own.most_common(6))
        figures.append(
            Figure(
                "control.calls",
                own.total() / TOTAL,
                "calls/pod",
                f"{own.total() / JOBS:.1f} writes a job: {by_kind}",
            )
        )
    return figures


AUDIT = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: None, verbs: [get, list, watch]}
- {level: Metadata}
"""


def writes(log: Path) -> Counter[str]:
    """What the controllers have written, by what was done to which kind."""
    found: Counter[str] = Counter()
    for line in log.read_bytes().splitlines():
        event = json.loads(line)
        if "controllers" in event.get("userAgent", "") and "objectRef" in event:
            what = event["objectRef"]
            sub = f"/{what['subresource']}" if what.get("subresource") else ""
            found[f"{event['verb']} {what['resource']}{sub}"] += 1
    return found


class Run(NamedTuple):
    """What one run took: seconds, seconds of CPU, MB."""

    created: float
    running: float
    cpu: float
    resident: float


async def lives(made: Cluster) -> Run:
    """500 jobs of 20 pods: to the last pod made, to the last job Running, and until the last counts
    are written."""
    async with Client(config.load(str(made.internal_kubeconfig)), pool=64) as client:
        await ready(client)
        await install(client)
        with (
            program(
                made, "kubelet", f"--fake-nodes={NODES}", "--nodes=0", f"--root-dir={made.pods}"
            ),
            program(made, "controllers", "--leader-elect=false") as controllers,
        ):
            nodes = await until_nodes(client)
            await until_open(client)
            before = sum(controllers.cpu_times()[:2])
            jobs = Cache(client, batch.JOB)
            async with Scheduler(client, nodes) as scheduler, Pods(client) as pods, jobs:
                made_at = [0.0]

                def note(old: Any, new: Any) -> None:
                    if old is None:
                        made_at[0] = time.perf_counter()
                    scheduler.pod(old, new)

                pods.cache.on_change(note)
                began = time.perf_counter()
                await asyncio.gather(
                    *(
                        client.create(batch.JOB, job(f"bench-{n}", TASKS, TASKS), "default")
                        for n in range(JOBS)
                    )
                )
                await pods.until_running(TOTAL, 300)
                while any(
                    each.status.state.phase != "Running" or each.status.running != TASKS
                    for each in jobs
                ):
                    await asyncio.sleep(0.05)
                running = time.perf_counter() - began
                used = sum(controllers.cpu_times()[:2]) - before
                return Run(made_at[0] - began, running, used, controllers.memory_info().rss / 1e6)


async def ready(client: Client) -> None:
    for _ in range(1200):
        try:
            await client.list(core.NAMESPACE.untyped)
            return
        except (ApiError, TransportError):
            await asyncio.sleep(0.05)
    raise TimeoutError("the API server does not answer")


async def until_nodes(client: Client) -> list[str]:
    for _ in range(200):
        found = [node["metadata"]["name"] for node in (await client.list(core.NODE.untyped)).items]
        if len(found) == NODES:
            return found
        await asyncio.sleep(0.1)
    raise TimeoutError("the fake nodes are not there")


async def until_open(client: Client) -> None:
    """The controllers are at work: they have placed the default queue below the root."""
    for _ in range(200):
        queue = await client.get(scheduling.QUEUE, "default")
        if queue.spec.parent:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("the controllers do not work")


# -- the admission server --------------------------------------------------------------------------

CONNECTIONS, REVIEWS, SLOW_RATE, SLOW_REVIEWS = 16, 20_000, 500, 5_000


async def admission() -> list[Figure]:
    """Reviews of new jobs, of which every third is refused, over HTTPS: as many as go, then 500 a
    second."""
    with api_server() as (made, _):
        async with Client(config.load(str(made.internal_kubeconfig)), pool=8) as client:
            await ready(client)
            await install(client)
            flags = (
                "--port=0",
                "--webhook-url=https://127.0.0.1",
                "--enabled-admission=/jobs/validate",
            )
            with program(made, "admission", *flags) as server:
                port, authority = await announced(client)
                requests = [review(number) for number in range(3)]
                context = ssl.create_default_context(cadata=authority)
                lines = [await Line.open(port, context) for _ in range(CONNECTIONS)]
                await flat_out(lines, requests, 1000)
                before = sum(server.cpu_times()[:2])
                began = time.perf_counter()
                await flat_out(lines, requests, REVIEWS)
                speed = REVIEWS / (time.perf_counter() - began)
                each = 1e6 * (sum(server.cpu_times()[:2]) - before) / REVIEWS
                delays = await paced(lines, requests)
                for line in lines:
                    line.writer.close()
    ninety_nine, median = (
        1000 * statistics.quantiles(delays, n=100)[98],
        1000 * statistics.median(delays),
    )
    return [
        Figure(
            "admission.reviews",
            speed,
            "1/s",
            f"{CONNECTIONS} connections; {each:.0f} µs of the server's CPU a review, {1e6 / each:,.0f} a second of it",
        ),
        Figure("admission.p99", ninety_nine, "ms", f"{SLOW_RATE} a second, p50 {median:.2f} ms"),
    ]


async def announced(client: Client) -> tuple[int, str]:
    """The port and the authority that the server has registered with."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/volcano-admission-service-jobs-validate"
    for _ in range(200):
        try:
            answer = await client.request("GET", path)
        except NotFound:
            await asyncio.sleep(0.05)
            continue
        hook = json.loads(answer.body)["webhooks"][0]["clientConfig"]
        return urlsplit(hook["url"]).port or 443, base64.b64decode(hook["caBundle"]).decode()
    raise TimeoutError("the admission server does not register")


def review(number: int) -> bytes:
    """The bytes of one request, as the API server would send it."""
    made = job(f"bench-{number}", TASKS, TASKS if number else TASKS + 1)
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    made["spec"]["tasks"].append(
        {**made["spec"]["tasks"][0], "name": "other", "policies": policies}
    )
    made["spec"]["minAvailable"] = TASKS if number else 3 * TASKS
    body = json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": f"u{number}",
                "kind": {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"},
                "resource": {
                    "group": "batch.volcano.sh",
                    "version": "v1alpha1",
                    "resource": "jobs",
                },
                "name": f"bench-{number}",
                "namespace": "default",
                "operation": "CREATE",
                "object": made,
                "oldObject": None,
                "dryRun": False,
            },
        }
    ).encode()
    head = f"POST /jobs/validate HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Line:
    """One connection: a request out, its answer in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port: int, context: ssl.SSLContext) -> Line:
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context))

    async def ask(self, request: bytes) -> bytes:
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        lowered = head.lower()
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(head.decode())
        at = lowered.index(b"content-length:") + 15
        return await self.reader.readexactly(int(lowered[at : lowered.index(b"\r\n", at)]))


async def flat_out(lines: list[Line], requests: list[bytes], count: int) -> None:
    async def one(line: Line) -> None:
        for number in range(count // len(lines)):
            answer = await line.ask(requests[number % len(requests)])
            assert (b'"allowed":true' in answer) == bool(number % len(requests)), answer

    await asyncio.gather(*(one(line) for line in lines))


async def paced(lines: list[Line], requests: list[bytes]) -> list[float]:
    """The seconds from when each request was due to its answer."""
    free: asyncio.Queue[Line] = asyncio.Queue()
    for line in lines:
        free.put_nowait(line)
    delays: list[float] = []

    async def one(number: int, due: float) -> None:
        line = await free.get()
        await line.ask(requests[number % len(requests)])
        delays.append(time.perf_counter() - due)
        free.put_nowait(line)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(SLOW_REVIEWS):
            due = began + number / SLOW_RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(one(number, due))
    return delays


# -- the command line ------------------------------------------------------------------------------


async def listing() -> Figure:
    """`vcctl job list` of 10,000 jobs, whole process."""
    with api_server() as (made, _):
        async with Client(config.load(str(made.internal_kubeconfig)), pool=64) as client:
            await ready(client)
            await install(client)
            for first in range(0, LISTED, 1000):
                await asyncio.gather(
                    *(
                        client.create(batch.JOB, job(f"bench-{n}", 20, 20), "default")
                        for n in range(first, first + 1000)
                    )
                )
        command = [
            str(Path(sys.executable).with_name("vcctl")),
            "job",
            "list",
            f"--kubeconfig={made.kubeconfig}",
        ]
        times, before = [], resource.getrusage(resource.RUSAGE_CHILDREN)
        for _ in range(5):
            began = time.perf_counter()
            output = subprocess.run(command, capture_output=True, check=True).stdout
            times.append(time.perf_counter() - began)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert output.count(b"bench-") == LISTED
    used = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / len(times)
    return Figure(
        "cli.list.10000",
        statistics.median(times),
        "s",
        f"over HTTPS, median of 5; {used:.2f} s of vcctl's CPU",
    )
