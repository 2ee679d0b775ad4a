"""Jobs through a real kube-apiserver with etcd, beside what that server can do by itself in the
same run.

The servers are those of `tests/kubernetes`; nodes, controllers, webhooks and scheduler are Hekla's.
A figure `live.SHAPE` is the part of the tighter of the server's two limits, creates and binds of
pods by a client alone, that jobs reach from first create to last bind; `live.share.SHAPE` is the
part of what creating all pods and then binding them would reach.

Each shape has a server of its own.  Its limits are taken just before and just after, with nothing
of Hekla's running, so that what else the machine does weighs on both sides alike.  A pod needs a
create and a bind, and of a gang no pod is bound before the last is made: where the server leaves no
processor idle, creating and then binding is the most that can be had.  The kubelets report each pod
that runs meanwhile, so what all three kinds of request reach is printed beside it, and
the processor time that the programs took for a pod: what is more than for the creates and binds
alone is Hekla's doing.

Beside the whole way stand its two parts, each beside the limit that is its own: pods as the
controllers create them, from the first to the last, and binds as the scheduler's come, from the
first to the last.  A job of one pod cannot do without three writes of its own besides: the job, its
PodGroup, and that the PodGroup is let in.  What the raw client gets out of the server with those,
webhooks included, is the most that jobs of one pod can reach, and is printed with them.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from benchmarks.apiserver import CONNECTIONS, NAMESPACE, Raw
from benchmarks.end_to_end import Pod, Pods, create_all, job
from benchmarks.figure import Aim, Figure
from benchmarks.kube_apiserver.reference import settle
from benchmarks.raw_client import FILLED_IN
from hekla.api import batch, scheduling
from hekla.api.kubernetes import core
from hekla.kube.client import Client
from hekla.kube.connection import config
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.http.client import TransportError

if TYPE_CHECKING:
    from tests.kubernetes.reference import Reference

T = TypeVar("T")
LIVE = {
    "1x1000": (1, 1000, 100),
    "20x50": (20, 50, 100),
    "1000x1": (1000, 1, 100),
    "pods": (1000, 0, 100),
    "5x1000": (5, 1000, 1000),
}
"""Shape -> (jobs, pods of each, fake nodes); no pods: as many plain pods without a job."""
OWN = ("live.1x1000", "live.20x50", "live.1000x1")
FIGURES = (*OWN, *(f"live.share.{shape}" for shape in LIVE))
AIMS = [
    Aim(
        name,
        ">= 80",
        "%",
        3,
        f"e2e.{name.removeprefix('live.')} on a kube-apiserver with etcd: of the tighter of its limits",
    )
    for name in OWN
]
NODES = 100
WARM = 500
"""Pods before anything is measured."""
COUNT = 1000
"""Pods of one measurement of a limit: as many as a shape has."""
WATCHES_OF_JOBS = re.compile(
    rf'^apiserver_longrunning_requests\{{.*group="{batch.JOB.group}".*resource="jobs".*'
    r'verb="WATCH".*\} (\S+)$',
    re.MULTILINE,
)
SECONDS = 240.0
"""For one shape; what is bound by then counts."""


class Limits(NamedTuple):
    """What a client that costs nothing gets out of the server: seconds for COUNT pods, and the
    processors' seconds meanwhile."""

    creating: float
    binding: float
    reporting: float
    """What a kubelet writes once each runs."""
    cpu: float
    """Of creating and binding."""


class Essential(NamedTuple):
    """What COUNT jobs of one pod need written beside their pods and binds: seconds, and the
    servers' processors' meanwhile."""

    seconds: float
    cpu: float


class Spans:
    """When the first and the last pod were there, and when the first and the last were bound, as a
    watch shows it."""

    def __init__(self) -> None:
        self.created: list[float] = []
        self.bound: list[float] = []

    def note(self, old: Pod | None, new: Pod | None) -> None:
        now = time.perf_counter()
        if old is None:
            self.created.append(now)
        if new is not None and new.spec.node_name and not (old is not None and old.spec.node_name):
            self.bound.append(now)

    @staticmethod
    def speed(times: list[float]) -> float:
        """A second, from the first to the last; 0 where there is no span."""
        return (
            (len(times) - 1) / (times[-1] - times[0])
            if len(times) > 1 and times[-1] > times[0]
            else 0.0
        )


class Placed(NamedTuple):
    """How far a shape came."""

    bound: int
    created: float
    """Seconds until its jobs were created."""
    seconds: float
    """Seconds until the last bind."""
    server_cpu: float
    own_cpu: float
    creation: float
    """Pods a second, from the first that was there to the last."""
    binding: float
    """Binds a second, from the first to the last."""


def measure(names: set[str]) -> Iterator[Figure]:
    shapes = [shape for shape in LIVE if names & {f"live.{shape}", f"live.share.{shape}"}]
    for figures in each(shapes, measured):
        yield from (figure for figure in figures if figure.name in names)


def each(names: list[str], measured: Callable[[str], T]) -> Iterator[T]:
    """Figures that need the reference server; one that fails is told of and left out."""
    from tests.kubernetes.processes import NotStarted
    from tests.kubernetes.programs import SERVER, CannotBuild, need

    if names:
        try:
            need(*SERVER, say=say)
        except CannotBuild as error:
            say(f"nothing live: {error}")
            return
        for name in names:
            try:
                yield measured(name)
            except (NotStarted, ApiError, TransportError, TimeoutError, RuntimeError) as error:
                say(f"{name} has no figure: {type(error).__name__}: {error}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measured(shape: str) -> list[Figure]:
    """One shape between two looks at the server's limits."""
    from tests.kubernetes.reference import reference

    jobs, tasks, nodes = LIVE[shape]
    with reference(durable=True) as server:
        with Raw() as raw:
            before = first_limits(server, raw)
        server.add_nodes("--nodes=0", f"--fake-nodes={nodes}")
        server.add_scheduler()
        server.add_webhooks()
        asyncio.run(ready(server.kubeconfig, nodes))
        placed = asyncio.run(place(server, jobs, tasks))
        # The webhooks stay: new jobs and groups are asked about.
        server.processes.end("kubelet", "scheduler", "controllers")
        with Raw() as raw:
            after = limits(server, raw, "after")
            own_writes = essential(server, raw) if tasks == 1 else None
    return figures_of(shape, placed, before, after, own_writes)


def figures_of(
    shape: str, placed: Placed, before: Limits, after: Limits, own_writes: Essential | None
) -> list[Figure]:
    """The shares, and how they came about."""
    jobs, tasks, nodes = LIVE[shape]
    creates, binds = (
        2 * COUNT / (before.creating + after.creating),
        2 * COUNT / (before.binding + after.binding),
    )
    both = 1 / (1 / creates + 1 / binds)
    with_reports = 2 * COUNT / (sum(before[:3]) + sum(after[:3]))
    speed = placed.bound / placed.seconds
    alone, shared, own = (
        1000 * seconds / pods
        for seconds, pods in (
            (before.cpu + after.cpu, 2 * COUNT),
            (placed.server_cpu, max(placed.bound, 1)),
            (placed.own_cpu, max(placed.bound, 1)),
        )
    )
    missing = jobs * max(tasks, 1) - placed.bound
    conditions = (
        f"{speed:,.0f} pods/s; {creates:,.0f} creates/s, {binds:,.0f} binds/s; creating, then binding {both:,.0f}/s: {speed / both:.0%}; "
        f"with the kubelets' reports {with_reports:,.0f}/s: {speed / with_reports:.0%}; "
        f"created {placed.creation:,.0f}/s: {placed.creation / creates:.0%}, bound {placed.binding:,.0f}/s: {placed.binding / binds:.0%}; "
        + (least(own_writes, after, speed) if own_writes else "")
        + f"processors a pod: server alone {alone:.1f} ms, with us {shared:.1f} ms, Hekla {own:.1f} ms; "
        f"{jobs} x {tasks} on {nodes} fake nodes, jobs created after {placed.created:.2f} s, "
        + (
            f"{missing} not bound after {placed.seconds:.0f} s"
            if missing
            else f"all bound after {placed.seconds:.2f} s"
        )
    )
    return [
        Figure(f"live.{shape}", 100 * speed / min(creates, binds), "%", conditions),
        Figure(f"live.share.{shape}", 100 * speed / both, "%", conditions),
    ]


def least(own_writes: Essential, after: Limits, speed: float) -> str:
    """What jobs of one pod can reach at the most, and how much of that they did."""
    most = COUNT / (own_writes.seconds + after.creating + after.binding)
    cpu = 1000 * (own_writes.cpu + after.cpu) / COUNT
    return f"with a job's own writes and {cpu:.1f} ms of the server's {most:,.0f}/s: {speed / most:.0%}; "


def address(server: Reference) -> dict[str, Any]:
    """Where the raw client finds the server, and how."""
    certificates = [str(server.pki / name) for name in ("ca.crt", "admin.crt", "admin.key")]
    return {
        "socket": "",
        "port": server.port,
        "certificates": certificates,
        "connections": CONNECTIONS,
        "namespace": NAMESPACE,
    }


def first_limits(server: Reference, raw: Raw) -> Limits:
    """Those of a server that has just been started, once it is warm; no pod is left for a scheduler
    to look at."""
    asyncio.run(settle(server.kubeconfig))
    for what in ("create", "bind"):
        raw.ask(what=what, prefix="warm", count=WARM, **address(server))
    return limits(server, raw, "before")


def limits(server: Reference, raw: Raw, prefix: str) -> Limits:
    began = sum(server.processes.cpu_seconds().values())

    def seconds(what: str) -> float:
        answer = raw.ask(what=what, prefix=prefix, count=COUNT, **address(server))
        return COUNT / float(answer["speed"])

    creating, binding = seconds("create"), seconds("bind")
    cpu = sum(server.processes.cpu_seconds().values()) - began
    return Limits(creating, binding, seconds("status"), cpu)


def essential(server: Reference, raw: Raw) -> Essential:
    """A job, its PodGroup, and that it is let in, COUNT times.  The webhooks have to be there."""
    from tests.kubernetes.programs import SERVER

    one = {**job(FILLED_IN, 1, 1), "metadata": {"name": FILLED_IN}}
    let_in = {"status": {"phase": "Inqueue"}}
    groups = scheduling.POD_GROUP.path(NAMESPACE)
    orders: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("POST", batch.JOB.path(NAMESPACE), one),
        ("POST", groups, group_of_one(FILLED_IN)),
        ("PATCH", f"{groups}/{FILLED_IN}", let_in),
    )
    cpu = server.processes.cpu_seconds()
    seconds = sum(
        COUNT
        / raw.ask(
            what="filled",
            method=method,
            path=path,
            body=body,
            prefix="own",
            count=COUNT,
            **address(server),
        )["speed"]
        for method, path, body in orders
    )
    after = server.processes.cpu_seconds()
    return Essential(seconds, sum(after[name] - cpu[name] for name in SERVER))


def group_of_one(name: str) -> dict[str, Any]:
    """The PodGroup of a job of one pod, as `benchmarks.end_to_end` describes it."""
    return {
        "apiVersion": scheduling.POD_GROUP.api_version,
        "kind": scheduling.POD_GROUP.kind,
        "metadata": {"name": name},
        "spec": {
            "minMember": 1,
            "queue": "default",
            "minTaskMember": {"work": 1},
            "minResources": {"cpu": "100m", "memory": "128Mi"},
        },
    }


async def ready(kubeconfig: Path, nodes: int = NODES, seconds: float = 120) -> None:
    """Waits until all nodes are ready, the default queue is open, and Kubernetes' garbage collector
    knows jobs.  Raises TimeoutError."""
    async with Client(config.load(str(kubeconfig))) as client:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            up = sum(
                1
                for node in (await client.list(core.NODE)).items
                for one in node.status.conditions
                if one.type == "Ready" and one.status == "True"
            )
            try:
                queue = await client.get(scheduling.QUEUE, "default")
                if (
                    up >= nodes
                    and queue.status.state == "Open"
                    and await watchers_of_jobs(client) > 1
                ):
                    return
            except NotFound:
                pass
            await asyncio.sleep(0.25)
    raise TimeoutError(f"the cluster was not ready within {seconds:.0f} s")


async def watchers_of_jobs(client: Client) -> int:
    """How many programs watch jobs: the controllers, and then Kubernetes' garbage collector, which
    looks for new kinds twice a minute.  Until then it asks for the owner of each pod and group."""
    text = (await client.request("GET", "/metrics")).body.decode()
    return sum(int(float(count)) for count in WATCHES_OF_JOBS.findall(text))


async def place(server: Reference, jobs: int, tasks: int) -> Placed:
    """Creates the jobs, and waits for the last bind or the end of the time."""
    from tests.kubernetes.programs import SERVER

    total = jobs * max(tasks, 1)
    async with Client(config.load(str(server.kubeconfig)), pool=32) as client, Pods(client) as pods:
        spans = Spans()
        pods.cache.on_change(spans.note)
        cpu = server.processes.cpu_seconds()
        began = time.perf_counter()
        await create_all(client, "bench", jobs, tasks)
        created = time.perf_counter() - began
        try:
            await pods.until("bound", total, SECONDS - created)
        except TimeoutError as error:
            say(str(error))
        seconds = time.perf_counter() - began
        spent = {name: now - cpu[name] for name, now in server.processes.cpu_seconds().items()}
        servers = sum(spent.pop(name) for name in SERVER)
        own = sum(spent.values())
        return Placed(
            pods.bound,
            created,
            seconds,
            servers,
            own,
            Spans.speed(spans.created),
            Spans.speed(spans.bound),
        )
