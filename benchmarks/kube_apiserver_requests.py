"""`python -m benchmarks.kube_apiserver_requests [--rounds N]`: what a request of each kind costs a
kube-apiserver and its etcd, in µs of processor time, as a table.

On a cluster that people share, that server's work decides, not ours.  A client that costs next to
nothing sends `COUNT` requests of one kind over HTTPS, with nothing else running; what the idle
servers use is subtracted.  Kinds of requests take turns, and the medians of all rounds are printed:
the server collects its garbage when it likes, so that one measurement says little.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import socket
import ssl
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.apiserver import NAMESPACE, Raw
from benchmarks.end_to_end import job
from benchmarks.kube_apiserver_jobs import address, group_of_one
from benchmarks.raw_client import pod, request, running
from benchmarks.reference import settle
from hekla.api import batch, scheduling
from hekla.local.apiserver.objects.encoding import fields, protobuf

if TYPE_CHECKING:
    from tests.kubernetes.reference import Reference

COUNT = 1000
CONNECTIONS = 16
ROUNDS = 3
SETTLE = 1.0
"""Seconds after a measurement, for what the server does behind its answers."""
IDLE = 5.0
"""Seconds for which the idle servers are watched."""
IN_FORCE = 5.0
"""Seconds until a policy is in force or gone."""

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
AS_BENCH = "?fieldManager=bench&force=true"

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
GROUPS = scheduling.POD_GROUP.path(NAMESPACE)
JOBS = batch.JOB.path(NAMESPACE)
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"

Make = Callable[[str, int], bytes]
"""(name, index) -> a request, or the body of one."""
Tree = dict[str, Any]


class Row(NamedTuple):
    """One kind of request."""

    title: str
    objects: str
    """Rows of one letter are about the same objects, which the first of them creates."""
    make: Make


class Cost(NamedTuple):
    """Of one request: µs of the servers' processors; and requests a second."""

    server: float
    etcd: float
    speed: float


# --- objects --------------------------------------------------------------------------------------


def new_pod(name: str, _: int) -> Tree:
    tree: Tree = json.loads(pod(NAMESPACE, name))
    return tree


def binding(name: str, _: int) -> Tree:
    target = {"kind": "Node", "name": "node-0"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}


def pod_status(name: str, index: int) -> Tree:
    status: Tree = json.loads(running(index))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, **status}


def next_pod_status(name: str, index: int) -> Tree:
    """Another one than `pod_status` has written."""
    return pod_status(name, index + 1)


def group(name: str, _: int) -> Tree:
    return group_of_one(name)


def group_status(name: str, index: int) -> Tree:
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


def event(name: str, _: int) -> Tree:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "volcano",
        "reportingInstance": "volcano-0",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "note": f"Successfully assigned {NAMESPACE}/{name} to node-0",
        "regarding": {"kind": "Pod", "namespace": NAMESPACE, "name": name, "apiVersion": "v1"},
    }


def lease(name: str, index: int) -> Tree:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"holderIdentity": f"holder-{index}", "leaseDurationSeconds": 40},
    }


def one_pod_job(name: str, _: int) -> Tree:
    return {**job(name, 1, 1), "metadata": {"name": name, "namespace": NAMESPACE}}


# --- requests -------------------------------------------------------------------------------------


def send(
    method: str,
    path: str,
    body: Callable[[str, int], Any],
    content: str = JSON,
    suffix: str = "",
    accept: str = "",
) -> Make:
    """Requests with a body.  Their path ends with the object's name and the suffix, but for creates
    in a collection."""

    def make(name: str, index: int) -> bytes:
        given = body(name, index)
        raw = given if isinstance(given, bytes) else json.dumps(given).encode()
        place = path if method == "POST" and not suffix else f"{path}/{name}{suffix}"
        text = request(method, place, raw, content)
        return text.replace(b"\r\n", f"\r\nAccept: {accept}\r\n".encode(), 1) if accept else text

    return make


def get(path: str, accept: str) -> Make:
    def make(name: str, _: int) -> bytes:
        return f"GET {path}/{name} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n".encode()

    return make


def encoded(body: Callable[[str, int], Tree]) -> Make:
    """The same objects in protobuf."""

    def make(name: str, index: int) -> bytes:
        tree = body(name, index)
        api_version, kind = tree.pop("apiVersion"), tree.pop("kind")
        described = fields.root(*api_version.rpartition("/")[::2], kind)
        assert described is not None
        return protobuf.enclose(api_version, kind, protobuf.encode(tree, described))

    return make


def status_alone(body: Callable[[str, int], Tree]) -> Callable[[str, int], Tree]:
    return lambda name, index: {"status": body(name, index)["status"]}


def status_operations(body: Callable[[str, int], Tree]) -> Callable[[str, int], list[Tree]]:
    """The same as a JSON patch, a field of the status each."""

    def make(name: str, index: int) -> list[Tree]:
        status = body(name, index)["status"]
        return [
            {"op": "add", "path": f"/status/{field}", "value": value}
            for field, value in status.items()
        ]

    return make


def whole_status(name: str, index: int) -> list[Tree]:
    """A JSON patch that adds the whole status of a PodGroup."""
    return [{"op": "add", "path": "/status", "value": group_status(name, index)["status"]}]


ROWS = (
    Row("pod: create, JSON", "a", send("POST", PODS, new_pod)),
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
    Row("PodGroup: create", "g", send("POST", GROUPS, group)),
    Row("PodGroup: create, the second time", "h", send("POST", GROUPS, group)),
    Row("PodGroup: create, the third time", "i", send("POST", GROUPS, group)),
    Row("PodGroup: status, merge patch", "g", send("PATCH", GROUPS, status_alone(group_status), MERGE)),
    Row("PodGroup: status, JSON patch", "h", send("PATCH", GROUPS, whole_status, JSON_PATCH)),
    Row("PodGroup: status, apply", "i", send("PATCH", GROUPS, group_status, APPLY, AS_BENCH)),
    Row("PodGroup: get", "g", get(GROUPS, JSON)),
    Row("Job: create", "j", send("POST", JOBS, one_pod_job)),
    Row("event: create, JSON", "e", send("POST", EVENTS, event)),
    Row("event: create, protobuf", "f", send("POST", EVENTS, encoded(event), PROTOBUF)),
    Row("lease: create, JSON", "l", send("POST", LEASES, lease)),
    Row("lease: create, protobuf", "m", send("POST", LEASES, encoded(lease), PROTOBUF)),
)  # fmt: skip
WATCHED = (
    Row("pod: create", "w", send("POST", PODS, new_pod)),
    Row("PodGroup: create", "x", send("POST", GROUPS, group)),
)
WATCHERS = (0, 5, 20)
REVIEWED = (
    Row("PodGroup: create", "u", send("POST", GROUPS, group)),
    Row("Job: create", "v", send("POST", JOBS, one_pod_job)),
)
POLICY = {
    "matchConstraints": {
        "resourceRules": [
            {
                "apiGroups": [scheduling.POD_GROUP.group],
                "apiVersions": [scheduling.POD_GROUP.version],
                "operations": ["CREATE"],
                "resources": [scheduling.POD_GROUP.plural],
            }
        ]
    },
    "validations": [
        {"expression": "!has(object.spec.minMember) || object.spec.minMember >= 0"},
        {"expression": "!has(object.spec.queue) || object.spec.queue != ''"},
    ],
}
POLICIES = {
    "ValidatingAdmissionPolicy": POLICY,
    "ValidatingAdmissionPolicyBinding": {"policyName": "bench", "validationActions": ["Deny"]},
}


# --- measuring ------------------------------------------------------------------------------------


class Bench:
    """Sends requests, and reads what the servers used for them."""

    def __init__(self, server: Reference) -> None:
        self.server = server
        self.idle = (0.0, 0.0)
        """Seconds of processor time a second, of kube-apiserver and of etcd."""
        self.costs: dict[str, list[Cost]] = {}

    def rest(self) -> None:
        """Learn what the idle servers use."""
        before = self._used()
        time.sleep(IDLE)
        after = self._used()
        self.idle = ((after[0] - before[0]) / IDLE, (after[1] - before[1]) / IDLE)

    def measure(self, row: Row, round: int, title: str = "", objects: str = "") -> None:
        """`COUNT` requests of a row.  All names have the same length."""
        prefix = f"{objects or row.objects}{round}"
        work = [
            base64.b64encode(row.make(f"{prefix}-{index:05d}", index)).decode()
            for index in range(COUNT)
        ]
        where = {**address(self.server), "connections": CONNECTIONS}
        with Raw() as raw:
            before, began = self._used(), time.perf_counter()
            speed = raw.ask(what="given", requests=work, **where)["speed"]
            time.sleep(SETTLE)
            after, seconds = self._used(), time.perf_counter() - began
        server, etcd = (
            1e6 * (after[i] - before[i] - self.idle[i] * seconds) / COUNT for i in range(2)
        )
        self.costs.setdefault(title or row.title, []).append(Cost(server, etcd, speed))

    def _used(self) -> tuple[float, float]:
        now = self.server.processes.cpu_seconds()
        return now["kube-apiserver"], now["etcd"]

    def table(self) -> Iterator[str]:
        """A row a kind of request: medians, and the lowest and highest of the server's."""
        yield "| request | kube-apiserver, µs | lowest to highest | etcd, µs | a second |"
        yield "|---|---|---|---|---|"
        for title, costs in self.costs.items():
            server, etcd, speed = (statistics.median(column) for column in zip(*costs, strict=True))
            low, high = min(costs).server, max(costs).server
            yield f"| {title} | {server:,.0f} | {low:,.0f} to {high:,.0f} | {etcd:,.0f} | {speed:,.0f} |"


def measure_all(bench: Bench, rounds: int) -> None:
    """All rows, round by round; then with watchers, with a policy, and with our webhooks."""
    server = bench.server
    for row in (ROWS[0], ROWS[13]):
        bench.measure(row, 0, "warm", f"warm{row.objects}")
    del bench.costs["warm"]
    bench.rest()
    for round in range(rounds):
        for row in ROWS:
            bench.measure(row, round)
    for round in range(rounds):
        for row in WATCHED:
            for count in WATCHERS:
                path = PODS if row.objects == "w" else GROUPS
                with watchers(server, path, count):
                    title = f"{row.title}, {count} watchers"
                    bench.measure(row, round, title, f"{row.objects}{count:02d}")
    for round in range(rounds):
        set_policy(server, there=True)
        bench.measure(REVIEWED[0], round, "PodGroup: create, a policy of two expressions", "p")
        set_policy(server, there=False)
        bench.measure(REVIEWED[0], round, "PodGroup: create, without", "q")
    add_queue(server)
    server.add_webhooks()
    for round in range(rounds):
        for row in REVIEWED:
            bench.measure(row, round, f"{row.title}, with its webhooks of Hekla")


def set_policy(server: Reference, *, there: bool) -> None:
    """Put a policy and its binding in force, or remove them."""
    for kind, spec in POLICIES.items():
        plural = "validatingadmissionpolicies" if kind.endswith("Policy") else f"{kind.lower()}s"
        api_version = "admissionregistration.k8s.io/v1"
        path = f"/apis/{api_version}/{plural}"
        if there:
            ask(
                server,
                "POST",
                path,
                {
                    "apiVersion": api_version,
                    "kind": kind,
                    "metadata": {"name": "bench"},
                    "spec": spec,
                },
            )
        else:
            ask(server, "DELETE", f"{path}/bench")
    time.sleep(IN_FORCE)


def add_queue(server: Reference) -> None:
    """The queue of the jobs, open as the controllers would have it."""
    path = scheduling.QUEUE.path()
    kind = {"apiVersion": scheduling.QUEUE.api_version, "kind": "Queue"}
    ask(server, "POST", path, {**kind, "metadata": {"name": "default"}, "spec": {"weight": 1}})
    ask(server, "PATCH", f"{path}/default/status", {"status": {"state": "Open"}})


def ask(server: Reference, method: str, path: str, body: Tree | None = None) -> None:
    """One request of the administrator.  Raises RuntimeError where it is refused."""
    content = MERGE if method == "PATCH" else JSON
    raw = json.dumps(body).encode() if body is not None else None
    status, answer = server.request(method, path, raw, {"Content-Type": content})
    if status not in (200, 201):
        raise RuntimeError(f"{method} {path}: {status} {answer.decode()}")


@contextmanager
def watchers(server: Reference, path: str, count: int) -> Iterator[None]:
    """As many watches of a collection, whose events are read and dropped."""
    tls = ssl.create_default_context(cafile=str(server.pki / "ca.crt"))
    tls.load_cert_chain(server.pki / "admin.crt", server.pki / "admin.key")
    _, body = server.request("GET", f"{path}?limit=1")
    version = json.loads(body)["metadata"]["resourceVersion"]
    head = f"GET {path}?watch=1&resourceVersion={version} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    connections = []
    for _ in range(count):
        plain = socket.create_connection(("127.0.0.1", server.port))
        connections.append(tls.wrap_socket(plain, server_hostname="localhost"))
        connections[-1].sendall(head.encode())
        threading.Thread(target=drain, args=(connections[-1],), daemon=True).start()
    time.sleep(SETTLE)
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
    try:
        with reference(durable=True) as server:
            asyncio.run(settle(server.kubeconfig))
            install_kinds(server)
            server.processes.end("kube-controller-manager")
            bench = Bench(server)
            try:
                measure_all(bench, options.rounds)
            finally:
                print("\n".join(bench.table()))
    except (CannotBuild, NotStarted) as error:
        print(f"nothing measured: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
