"""`python -m benchmarks.kube_apiserver.requests [--rounds N]`: what a request of each kind costs a
kube-apiserver and its etcd, in µs of processor time, as a table.

On a cluster that people share, that server's work decides, not ours.  A client that costs next to
nothing sends blocks of `COUNT` requests of one kind over HTTPS, with nothing else running; what the
idle servers use is subtracted.  Each round has a block of every kind, in another order each time.
The server's collection of garbage takes as much as hundreds of requests, whenever it likes: here it
waits until `MEMORY` is full, a block that it fell into does not count, and what a request allocates
is printed beside its time.  On a server as it usually runs a quarter more comes on top.

What a request meets besides itself (watchers, webhooks, policies) depends on the namespace it is
sent to, so that all variants take turns on one server.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import socket
import ssl
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.apiserver import NAMESPACE, Raw
from benchmarks.end_to_end import job
from benchmarks.kube_apiserver.jobs import address, group_of_one
from benchmarks.kube_apiserver.reference import settle
from benchmarks.raw_client import pod, request, running
from hekla.admission import cluster_policies
from hekla.api import batch, scheduling
from hekla.api.names import NAMESPACE_NAME
from hekla.local.apiserver.objects.encoding import fields, protobuf

if TYPE_CHECKING:
    from tests.kubernetes.reference import Reference

COUNT = 300
CONNECTIONS = 8
ROUNDS = 10
IDLE = 5.0
"""Seconds for which the idle servers are watched."""
IN_FORCE = 5.0
"""Seconds until policies are in force."""
SEED = 1
MEMORY = "8GiB"
COLLECTED, ALLOCATED = "go_gc_duration_seconds_count", "go_memstats_alloc_bytes_total"

WATCHED = {"watched-5": 5, "watched-20": 20}
"""Namespace -> how many clients watch its pods and PodGroups."""
MUTATED, VALIDATED, REVIEWED, GOVERNED = "mutated", "validated", "reviewed", "governed"
"""Namespaces whose objects meet Hekla's mutating webhooks, its validating ones, both, or its
policies in their place; others meet none."""

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
AS_BENCH = "?fieldManager=bench&force=true"

PODS = "/api/v1/namespaces/{}/pods"
GROUPS = f"/apis/{scheduling.POD_GROUP.api_version}/namespaces/{{}}/podgroups"
JOBS = f"/apis/{batch.JOB.api_version}/namespaces/{{}}/jobs"
EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"

Body = Callable[[str, str, int], Any]
"""(namespace, name, index) -> the body of a request: bytes, or what encodes to JSON."""
Make = Callable[[str, str, int], bytes]
"""The same -> a request."""
Tree = dict[str, Any]


class Row(NamedTuple):
    """One kind of request."""

    title: str
    objects: str
    """Rows of one letter are about the same objects, which the first of them creates."""
    make: Make
    namespace: str = NAMESPACE
    versioned: str = ""
    """The path of a collection whose objects' versions `make` is given in the place of indices."""


class Cost(NamedTuple):
    """Of one request: µs of the servers' processors, bytes that kube-apiserver allocates; and
    requests a second."""

    server: float
    etcd: float
    allocated: float
    speed: float


# --- objects --------------------------------------------------------------------------------------


def new_pod(namespace: str, name: str, _: int) -> Tree:
    tree: Tree = json.loads(pod(namespace, name))
    return tree


def binding(_: str, name: str, __: int) -> Tree:
    target = {"kind": "Node", "name": "node-0"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}


def pod_status(_: str, name: str, index: int) -> Tree:
    status: Tree = json.loads(running(index))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, **status}


def next_pod_status(namespace: str, name: str, index: int) -> Tree:
    """Another one than `pod_status` has written."""
    return pod_status(namespace, name, index + 1)


def group(_: str, name: str, __: int) -> Tree:
    return group_of_one(name)


def group_status(_: str, name: str, index: int) -> Tree:
    """As the scheduler writes it when a group is let in."""
    condition = {
        "type": "Scheduled",
        "status": "True",
        "reason": "tasks in the gang are ready to be scheduled",
        "transitionID": f"{index:08d}",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    kind = {"apiVersion": scheduling.POD_GROUP.api_version, "kind": "PodGroup"}
    status = {"phase": "Inqueue", "conditions": [condition]}
    return {**kind, "metadata": {"name": name}, "status": status}


def event(namespace: str, name: str, _: int) -> Tree:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "volcano",
        "reportingInstance": "volcano-0",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "note": f"Successfully assigned {namespace}/{name} to node-0",
        "regarding": {"kind": "Pod", "namespace": namespace, "name": name, "apiVersion": "v1"},
    }


def lease(namespace: str, name: str, index: int) -> Tree:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"holderIdentity": f"holder-{index}", "leaseDurationSeconds": 40},
    }


def one_pod_job(namespace: str, name: str, _: int) -> Tree:
    return {**job(name, 1, 1), "metadata": {"name": name, "namespace": namespace}}


def job_status(namespace: str, name: str, index: int) -> Tree:
    """A job that runs, as the controllers write it."""
    at = "2026-01-01T00:00:00Z"
    conditions = [{"status": phase, "lastTransitionTime": at} for phase in ("Pending", "Running")]
    status = {
        "state": {"phase": "Running", "lastTransitionTime": at},
        "minAvailable": 1,
        "running": 1,
        "version": 1,
        "runningDuration": f"{index}s",
        "taskStatusCount": {"work": {"phase": {"Running": 1}}},
        "controlledResources": {},
        "conditions": conditions,
    }
    return {**one_pod_job(namespace, name, index), "status": status}


def job_update(namespace: str, name: str, version: int) -> Tree:
    """The same for a PUT, which has to name the version that it replaces."""
    metadata = {"name": name, "namespace": namespace, "resourceVersion": str(version)}
    return {**job_status(namespace, name, 0), "metadata": metadata}


# --- requests -------------------------------------------------------------------------------------


def send(
    method: str, path: str, body: Body, content: str = JSON, suffix: str = "", accept: str = ""
) -> Make:
    """Requests with a body.  Their path ends with the object's name and the suffix, but for creates
    in a collection."""

    def make(namespace: str, name: str, index: int) -> bytes:
        given = body(namespace, name, index)
        raw = given if isinstance(given, bytes) else json.dumps(given).encode()
        place = path.format(namespace)
        place = place if method == "POST" and not suffix else f"{place}/{name}{suffix}"
        text = request(method, place, raw, content)
        return text.replace(b"\r\n", f"\r\nAccept: {accept}\r\n".encode(), 1) if accept else text

    return make


def get(path: str, accept: str) -> Make:
    def make(namespace: str, name: str, _: int) -> bytes:
        place = f"{path.format(namespace)}/{name}"
        return f"GET {place} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n".encode()

    return make


def encoded(body: Body) -> Body:
    """The same objects in protobuf."""

    def make(namespace: str, name: str, index: int) -> bytes:
        tree = body(namespace, name, index)
        api_version, kind = tree.pop("apiVersion"), tree.pop("kind")
        group, _, version = api_version.rpartition("/")
        described = fields.root(group, version, kind)
        assert described is not None
        return protobuf.enclose(api_version, kind, protobuf.encode(tree, described))

    return make


def status_alone(body: Body) -> Body:
    return lambda namespace, name, index: {"status": body(namespace, name, index)["status"]}


def status_operations(body: Body) -> Body:
    """The same as a JSON patch, a field of the status each."""

    def make(namespace: str, name: str, index: int) -> list[Tree]:
        status = body(namespace, name, index)["status"]
        return [
            {"op": "add", "path": f"/status/{field}", "value": value}
            for field, value in status.items()
        ]

    return make


def whole_status(body: Body) -> Body:
    """A JSON patch that adds the whole status."""

    def make(namespace: str, name: str, index: int) -> list[Tree]:
        return [{"op": "add", "path": "/status", "value": body(namespace, name, index)["status"]}]

    return make


NEW_POD, NEW_GROUP, NEW_JOB = (
    send("POST", path, body)
    for path, body in ((PODS, new_pod), (GROUPS, group), (JOBS, one_pod_job))
)
ROWS = (
    Row("pod: create, JSON", "a", NEW_POD),
    Row("pod: create, JSON, answered in protobuf", "b", send("POST", PODS, new_pod, accept=PROTOBUF)),
    Row("pod: create, protobuf", "c", send("POST", PODS, encoded(new_pod), PROTOBUF)),
    Row("pod: bind, JSON", "a", send("POST", PODS, binding, JSON, "/binding")),
    Row("pod: bind, protobuf", "c", send("POST", PODS, encoded(binding), PROTOBUF, "/binding")),
    Row("pod: status, merge patch", "a", send("PATCH", PODS, status_alone(pod_status), MERGE, "/status")),
    Row("pod: status, strategic merge patch", "b", send("PATCH", PODS, status_alone(pod_status), STRATEGIC, "/status")),
    Row("pod: status, JSON patch", "c", send("PATCH", PODS, status_operations(pod_status), JSON_PATCH, "/status")),
    Row("pod: status again, PUT, JSON", "a", send("PUT", PODS, next_pod_status, JSON, "/status")),
    Row("pod: status again, PUT, protobuf", "b", send("PUT", PODS, encoded(next_pod_status), PROTOBUF, "/status")),
    Row("pod: status again, apply", "c", send("PATCH", PODS, next_pod_status, APPLY, f"/status{AS_BENCH}")),
    Row("pod: get, JSON", "a", get(PODS, JSON)),
    Row("pod: get, protobuf", "a", get(PODS, PROTOBUF)),
    Row("PodGroup: create", "g", NEW_GROUP),
    Row("PodGroup: status, merge patch", "g", send("PATCH", GROUPS, status_alone(group_status), MERGE)),
    Row("PodGroup: status, JSON patch", "h", send("PATCH", GROUPS, whole_status(group_status), JSON_PATCH)),
    Row("PodGroup: status, apply", "i", send("PATCH", GROUPS, group_status, APPLY, AS_BENCH)),
    Row("PodGroup: get", "g", get(GROUPS, JSON)),
    Row("Job: create", "j", NEW_JOB),
    Row("Job: status, PUT", "j", send("PUT", JOBS, job_update, JSON, "/status"), versioned=JOBS),
    Row("Job: status, merge patch", "k", send("PATCH", JOBS, status_alone(job_status), MERGE, "/status")),
    Row("Job: status, JSON patch", "n", send("PATCH", JOBS, whole_status(job_status), JSON_PATCH, "/status")),
    Row("event: create, JSON", "e", send("POST", EVENTS, event)),
    Row("event: create, protobuf", "f", send("POST", EVENTS, encoded(event), PROTOBUF)),
    Row("lease: create, JSON", "l", send("POST", LEASES, lease)),
    Row("lease: create, protobuf", "m", send("POST", LEASES, encoded(lease), PROTOBUF)),
    *(Row(f"pod: create, {count} watchers", "w", NEW_POD, space) for space, count in WATCHED.items()),
    *(Row(f"PodGroup: create, {count} watchers", "x", NEW_GROUP, space) for space, count in WATCHED.items()),
    Row("PodGroup: create, with its webhooks of Hekla", "u", NEW_GROUP, REVIEWED),
    Row("PodGroup: create, with its policies of Hekla", "u", NEW_GROUP, GOVERNED),
    Row("Job: create, with its mutating webhook of Hekla", "v", NEW_JOB, MUTATED),
    Row("Job: create, with its validating webhook of Hekla", "v", NEW_JOB, VALIDATED),
    Row("Job: create, with both webhooks of Hekla", "v", NEW_JOB, REVIEWED),
    Row("Job: create, with its policies of Hekla", "v", NEW_JOB, GOVERNED),
)  # fmt: skip
PREPARED = {"h": NEW_GROUP, "i": NEW_GROUP, "k": NEW_JOB, "n": NEW_JOB}
"""What makes the objects of a letter whose first row does not."""


# --- measuring ------------------------------------------------------------------------------------


class Bench:
    """Sends requests, and reads what the servers used for them."""

    def __init__(self, server: Reference, raw: Raw) -> None:
        self.server = server
        self.raw = raw
        self.idle = (0.0, 0.0)
        """Seconds of processor time a second, of kube-apiserver and of etcd."""
        self.costs: dict[str, list[Cost]] = {row.title: [] for row in ROWS}

    def rest(self) -> None:
        """Learn what the idle servers use."""
        before = self._used()
        time.sleep(IDLE)
        after = self._used()
        self.idle = ((after[0] - before[0]) / IDLE, (after[1] - before[1]) / IDLE)

    def round(self, number: int, shuffled: random.Random) -> None:
        """A block of each row.  Rows about the same objects stay in their order."""
        objects = [(row.objects, row.namespace) for row in ROWS]
        first = {key: objects.index(key) for key in objects}
        place = {key: shuffled.random() for key in first}
        for row in sorted(ROWS, key=lambda row: place[row.objects, row.namespace]):
            key = row.objects, row.namespace
            if ROWS[first[key]] is row and row.objects in PREPARED:
                self.send(row._replace(make=PREPARED[row.objects]), number)
            cost = self.send(row, number)
            if cost is not None:
                self.costs[row.title].append(cost)

    def send(self, row: Row, number: int) -> Cost | None:
        """One block; gives nothing where garbage was collected meanwhile.  All names have the same
        length.  Raises RuntimeError if a request was refused."""
        prefix = f"{row.objects}{number:02d}"
        numbers = {f"{prefix}-{index:05d}": index for index in range(COUNT)}
        if row.versioned:
            numbers = self._versions(row.versioned.format(row.namespace), numbers)
        work = [
            base64.b64encode(row.make(row.namespace, name, number)).decode()
            for name, number in numbers.items()
        ]
        where = {**address(self.server), "connections": CONNECTIONS}
        before, heap, began = self._used(), self._heap(), time.perf_counter()
        try:
            speed = self.raw.ask(what="given", requests=work, **where)["speed"]
        except RuntimeError as error:
            raise RuntimeError(f"{row.title}: {error}") from error
        after, seconds = self._used(), time.perf_counter() - began
        server, etcd = (
            1e6 * (after[i] - before[i] - self.idle[i] * seconds) / COUNT for i in range(2)
        )
        collections, allocated = (now - then for now, then in zip(self._heap(), heap, strict=True))
        return None if collections else Cost(server, etcd, allocated / COUNT, speed)

    def _versions(self, path: str, names: Iterable[str]) -> dict[str, int]:
        found = {
            tree["metadata"]["name"]: int(tree["metadata"]["resourceVersion"])
            for tree in json.loads(self.server.get(path)[1])["items"]
        }
        return {name: found[name] for name in names}

    def _used(self) -> tuple[float, float]:
        now = self.server.processes.cpu_seconds()
        return now["kube-apiserver"], now["etcd"]

    def _heap(self) -> tuple[float, float]:
        """How often garbage was collected, and how many bytes were allocated."""
        text = self.server.get("/metrics")[1].decode()
        found = dict(
            line.split() for line in text.splitlines() if line.startswith((COLLECTED, ALLOCATED))
        )
        return float(found[COLLECTED]), float(found[ALLOCATED])

    def table(self) -> Iterator[str]:
        """A row a kind of request."""
        yield "| request | kube-apiserver, µs | standard error | allocated, kB | etcd, µs | a second |"
        yield "|---|---|---|---|---|---|"
        for title, costs in self.costs.items():
            if len(costs) > 1:
                server, etcd, allocated, speed = (
                    statistics.fmean(column) for column in zip(*costs, strict=True)
                )
                error = statistics.stdev(cost.server for cost in costs) / len(costs) ** 0.5
                yield (
                    f"| {title} | {server:,.0f} | {error:,.0f} | {allocated / 1000:,.0f} "
                    f"| {etcd:,.0f} | {speed:,.0f} |"
                )


def prepare(server: Reference) -> None:
    """The namespaces, and what is in force in each; a queue, open as the controllers would have it."""
    for namespace in (*WATCHED, MUTATED, VALIDATED, REVIEWED, GOVERNED):
        ask(server, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        account = {"metadata": {"name": "default"}}  # which the controllers would make
        ask(server, "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    path = scheduling.QUEUE.path()
    kind = {"apiVersion": scheduling.QUEUE.api_version, "kind": "Queue"}
    ask(server, "POST", path, {**kind, "metadata": {"name": "default"}, "spec": {"weight": 1}})
    ask(server, "PATCH", f"{path}/default/status", {"status": {"state": "Open"}})
    server.add_webhooks()
    for kind_of_hook, namespaces in (
        ("mutating", [MUTATED, REVIEWED]),
        ("validating", [VALIDATED, REVIEWED]),
    ):
        path = f"{ADMISSION}/{kind_of_hook}webhookconfigurations"
        for found in json.loads(server.get(path)[1])["items"]:
            hooks = [
                {**hook, "namespaceSelector": within(*namespaces)} for hook in found["webhooks"]
            ]
            ask(server, "PATCH", f"{path}/{found['metadata']['name']}", {"webhooks": hooks})
    for tree in cluster_policies.objects():
        if tree["kind"].endswith("Binding"):
            tree["spec"]["matchResources"] = {"namespaceSelector": within(GOVERNED)}
        plural = f"{tree['kind'].lower()}s".replace("policys", "policies")
        ask(server, "POST", f"{ADMISSION}/{plural}", tree)
    time.sleep(IN_FORCE)


def within(*namespaces: str) -> Tree:
    """A selector of namespaces by their names."""
    expression = {"key": NAMESPACE_NAME, "operator": "In", "values": list(namespaces)}
    return {"matchExpressions": [expression]}


def ask(server: Reference, method: str, path: str, body: Tree | None = None) -> None:
    """One request of the administrator.  Raises RuntimeError where it is refused."""
    content = MERGE if method == "PATCH" else JSON
    raw = json.dumps(body).encode() if body is not None else None
    status, answer = server.request(method, path, raw, {"Content-Type": content})
    if status not in (200, 201):
        raise RuntimeError(f"{method} {path}: {status} {answer.decode()}")


@contextmanager
def watching(server: Reference) -> Iterator[None]:
    """The watches of the namespaces that have some; their events are read and dropped."""
    tls = ssl.create_default_context(cafile=str(server.pki / "ca.crt"))
    tls.load_cert_chain(server.pki / "admin.crt", server.pki / "admin.key")
    connections = []
    for namespace, count in WATCHED.items():
        for path in (PODS.format(namespace), GROUPS.format(namespace)):
            head = f"GET {path}?watch=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
            for _ in range(count):
                plain = socket.create_connection(("127.0.0.1", server.port))
                connections.append(tls.wrap_socket(plain, server_hostname="localhost"))
                connections[-1].sendall(head.encode())
                threading.Thread(target=drain, args=(connections[-1],), daemon=True).start()
    try:
        yield
    finally:
        for connection in connections:
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()


def drain(connection: ssl.SSLSocket) -> None:
    """Read what comes until the connection ends."""
    try:
        while connection.recv(1 << 16):
            pass
    except OSError:
        pass


def main() -> int:
    """Measure, and print the table."""
    from tests.admission.process import install_kinds
    from tests.kubernetes.processes import NotStarted
    from tests.kubernetes.programs import CannotBuild
    from tests.kubernetes.reference import reference

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="default: %(default)s")
    options = parser.parse_args()
    os.environ |= {"GOGC": "off", "GOMEMLIMIT": MEMORY}
    try:
        with reference(durable=True) as server:
            asyncio.run(settle(server.kubeconfig))
            install_kinds(server)
            server.processes.end("kube-controller-manager")
            prepare(server)
            with watching(server), Raw() as raw:
                bench = Bench(server, raw)
                for row in (ROWS[0], ROWS[13]):
                    bench.send(row, 99)
                bench.rest()
                shuffled = random.Random(SEED)
                try:
                    for number in range(options.rounds):
                        bench.round(number, shuffled)
                finally:
                    print("\n".join(bench.table()))
    except (CannotBuild, NotStarted) as error:
        print(f"nothing measured: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
