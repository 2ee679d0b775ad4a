"""A client that costs next to nothing, so that what is measured is the server: ready-made requests
over many connections.

Runs in a process of its own (`python -m benchmarks.raw_client`), which leaves the server a core.  It reads
just enough of an answer to know its status and where it ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar, cast


class Connection(asyncio.Protocol):
    """One keep-alive connection: sends a request when told, resolves its future when the answer is
    complete."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.buffer = b""
        self.status = self.left = self.received = 0
        """Of the answer whose head has been read: its status, the bytes of its body that are still
        to come, and all of them."""
        self.chunked = False
        """Whether only its last chunk tells where the answer ends; `buffer` then has the last
        bytes."""
        self.answer: asyncio.Future[int] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass

    def data_received(self, data: bytes) -> None:
        if self.chunked:
            self.received += len(data)
            self.buffer = (self.buffer + data)[-7:]
        elif self.left:
            self.left -= len(data)
        else:
            self.buffer += data
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self.buffer[:end].lower()
            self.status = int(head[9:12])
            at = head.find(b"content-length:")
            if at < 0:
                self.chunked, self.buffer = True, self.buffer[end + 2 :]
                self.received = len(self.buffer)
            else:
                stop = head.find(b"\r", at)
                self.received = int(head[at + 15 : stop if stop > 0 else end])
                self.left = self.received - (len(self.buffer) - end - 4)
                self.buffer = b""
        if self.chunked and self.buffer.endswith(b"\r\n0\r\n\r\n"):
            self.chunked, self.buffer = False, b""
        if not self.left and not self.chunked:
            assert self.answer is not None
            self.answer.set_result(self.status)

    def connection_lost(self, error: Exception | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error or ConnectionError("the server closed the connection"))

    def send(self, request: bytes) -> asyncio.Future[int]:
        """The status code, once the whole answer is there."""
        assert self.transport is not None
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.answer


class Watcher(asyncio.Protocol):
    """One watch of all pods: counts events, and notes when each named pod was first seen."""

    def __init__(self, names: re.Pattern[bytes] | None) -> None:
        self.names = names
        self.seen: dict[bytes, float] = {}
        self.events = 0
        self.first = self.last = 0.0
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        head = b"GET /api/v1/pods?watch=1&resourceVersion=%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
        cast(asyncio.Transport, transport).write(head % self.start)

    start = b"0"
    """The resourceVersion to watch from."""

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        data = self.rest + data
        end = data.rfind(b"}\n") + 2
        self.rest, data = data[max(end, 1) if end > 1 else 0 :], data[: end if end > 1 else 0]
        count = data.count(b"}\n")
        if not count:
            return
        self.events += count
        self.first = self.first or now
        self.last = now
        if self.names is not None:
            for name in self.names.findall(data):
                self.seen.setdefault(name, now)


async def watch(order: dict[str, object], names: re.Pattern[bytes] | None = None) -> Watcher:
    """A watcher from now on."""
    watcher = Watcher(names)
    watcher.start = str(order["version"]).encode()
    await connect(order, lambda: watcher)
    return watcher


async def count_events(order: dict[str, object]) -> dict[str, object]:
    """Ten watchers until all have seen `count` events each: events a second in all."""
    watchers = [await watch(order) for _ in range(int(str(order["watchers"])))]
    print(json.dumps({"watching": len(watchers)}), flush=True)
    count = int(str(order["count"]))
    while any(watcher.events < count for watcher in watchers):
        await asyncio.sleep(0.01)
    seconds = max(w.last for w in watchers) - min(w.first for w in watchers)
    return {"speed": sum(w.events for w in watchers) / seconds}


async def delay_of_events(order: dict[str, object]) -> dict[str, object]:
    """From the answer of each create to its event at the watchers of the same process, at a given
    rate."""
    prefix = str(order["prefix"])
    names = re.compile(rb'"name":"(%s-[0-9]+)"' % prefix.encode())
    watchers = [await watch(order, names) for _ in range(int(str(order.get("watchers", 1))))]
    connections = [await connect(order, Connection) for _ in range(int(str(order["connections"])))]
    work = list(requests("create", str(order["namespace"]), prefix, int(str(order["count"]))))
    answered = await offer(connections, work, float(str(order["rate"])))
    await asyncio.sleep(0.5)
    delays = sorted(
        watcher.seen[f"{prefix}-{i}".encode()] - at
        for watcher in watchers
        for i, at in enumerate(answered.at)
    )
    return {
        "p50": delays[len(delays) // 2],
        "p99": delays[int(len(delays) * 0.99)],
        "earlier": sum(delay <= 0 for delay in delays) / len(delays),
    }


async def time_of_list(order: dict[str, object]) -> dict[str, object]:
    """Seconds from sending a list of the namespace's pods to its last byte, the median of five, and
    its length in bytes."""
    connection = await connect(order, Connection)
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        status = await connection.send(
            f"GET /api/v1/namespaces/{order['namespace']}/pods HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        seconds.append(time.perf_counter() - began)
        if status != 200:
            raise SystemExit(f"the server answered {status}")
    return {"seconds": sorted(seconds)[2], "bytes": connection.received}


P = TypeVar("P", bound=asyncio.Protocol)


async def connect(order: dict[str, object], protocol: Callable[[], P]) -> P:
    """To where an order says that the server is: a Unix socket, or a port with certificates
    (authority, certificate, key)."""
    loop = asyncio.get_running_loop()
    if order.get("socket"):
        return (await loop.create_unix_connection(protocol, str(order["socket"])))[1]
    given = order["certificates"]
    assert isinstance(given, list)
    authority, certificate, key = map(str, given)
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(certificate, key)
    port = int(str(order["port"]))
    return (
        await loop.create_connection(
            protocol, "127.0.0.1", port, ssl=context, server_hostname="localhost"
        )
    )[1]


def pod(namespace: str, name: str) -> bytes:
    """A pod of about 1.5 kB, as a job controller writes it."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {
                    "volcano.sh/job-name": "train",
                    "volcano.sh/job-namespace": namespace,
                    "volcano.sh/queue-name": "default",
                    "volcano.sh/task-spec": "worker",
                    "volcano.sh/task-index": "7",
                },
                "annotations": {
                    "scheduling.k8s.io/group-name": "train-0b1c2d3e-4f50-6172-8394-a5b6c7d8e9f0",
                    "volcano.sh/job-name": "train",
                    "volcano.sh/job-version": "0",
                    "volcano.sh/job-retry-count": "0",
                    "volcano.sh/queue-name": "default",
                    "volcano.sh/task-spec": "worker",
                    "volcano.sh/task-index": "7",
                    "volcano.sh/template-uid": "train-worker",
                },
            },
            "spec": {
                "schedulerName": "volcano",
                "restartPolicy": "OnFailure",
                "hostname": name,
                "subdomain": "train",
                "containers": [
                    {
                        "name": "main",
                        "image": "registry.example.com/team/trainer:1.2.3",
                        "imagePullPolicy": "IfNotPresent",
                        "command": ["python3", "-m", "trainer", "--epochs", "10"],
                        "env": [{"name": f"VARIABLE_{i}", "value": f"value-{i}"} for i in range(6)],
                        "resources": {
                            "requests": {"cpu": "1", "memory": "1Gi"},
                            "limits": {"cpu": "1", "memory": "1Gi"},
                        },
                        "ports": [{"containerPort": 2222, "name": "tfjob-port"}],
                    }
                ],
            },
        },
        separators=(",", ":"),
    ).encode()


def request(method: str, path: str, body: bytes, content: str = "application/json") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def running(address: int) -> bytes:
    """What a node writes once a pod runs: a merge patch of its status."""
    at = "2026-01-01T00:00:00Z"
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return json.dumps(
        {
            "status": {
                "phase": "Running",
                "startTime": at,
                "hostIP": "10.0.0.1",
                "podIP": f"10.1.{address >> 8 & 255}.{address & 255}",
                "conditions": [
                    {"type": kind, "status": "True", "lastTransitionTime": at} for kind in kinds
                ],
                "containerStatuses": [
                    {
                        "name": "main",
                        "image": "registry.example.com/team/trainer:1.2.3",
                        "imageID": "",
                        "ready": True,
                        "restartCount": 0,
                        "started": True,
                        "state": {"running": {"startedAt": at}},
                    }
                ],
            }
        }
    ).encode()


def requests(what: str, namespace: str, prefix: str, count: int) -> Iterator[bytes]:
    """Ready-made requests: `create` makes pods; `bind`, `status` and `get` are about those that
    `create` made with the same prefix."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for index in range(count):
        name = f"{prefix}-{index}"
        if what == "create":
            yield request("POST", pods, pod(namespace, name))
        elif what == "bind":
            body = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name},
                "target": {"kind": "Node", "name": "node-0"},
            }
            yield request("POST", f"{pods}/{name}/binding", json.dumps(body).encode())
        elif what == "status":
            yield request(
                "PATCH", f"{pods}/{name}/status", running(index), "application/merge-patch+json"
            )
        else:
            yield f"GET {pods}/{name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


FILLED_IN = "a-name-here"
"""Stands for the name of each object in the path and the body of an order for `filled` requests."""


def filled(order: dict[str, object]) -> Iterator[bytes]:
    """One request each for objects of any kind: method, path and body of the order, with the names
    filled in."""
    method, path, body = (
        str(order["method"]),
        str(order["path"]),
        json.dumps(order["body"], separators=(",", ":")),
    )
    content = "application/merge-patch+json" if method == "PATCH" else "application/json"
    for index in range(int(str(order["count"]))):
        name = f"{order['prefix']}-{index}"
        yield request(
            method, path.replace(FILLED_IN, name), body.replace(FILLED_IN, name).encode(), content
        )


async def saturate(connections: list[Connection], work: list[bytes]) -> tuple[float, list[float]]:
    """All requests as fast as the connections carry them: (requests a second, each one's seconds)."""
    pending = iter(work)
    latencies: list[float] = []

    async def worker(connection: Connection) -> None:
        for one in pending:
            began = time.perf_counter()
            status = await connection.send(one)
            latencies.append(time.perf_counter() - began)
            if status not in (200, 201):
                raise SystemExit(f"the server answered {status}")

    began = time.perf_counter()
    await asyncio.gather(*map(worker, connections))
    return len(work) / (time.perf_counter() - began), latencies


class Offered(NamedTuple):
    """What became of requests at a fixed rate."""

    latencies: list[float]
    """Seconds from when each was due, so that a stalled server is not spared."""
    at: list[float]
    """When each was answered, in the order of the requests."""


async def offer(connections: list[Connection], work: list[bytes], rate: float) -> Offered:
    """Requests at a fixed rate."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for connection in connections:
        free.put_nowait(connection)
    latencies: list[float] = []
    at = [0.0] * len(work)

    async def one(index: int, due: float, content: bytes) -> None:
        connection = await free.get()
        await connection.send(content)
        at[index] = time.perf_counter()
        latencies.append(at[index] - due)
        free.put_nowait(connection)

    began = time.perf_counter()
    tasks = []
    for index, content in enumerate(work):
        due = began + index / rate
        wait = due - time.perf_counter()
        if wait > 0.001:
            await asyncio.sleep(wait)
        tasks.append(asyncio.create_task(one(index, due, content)))
    await asyncio.gather(*tasks)
    return Offered(latencies, at)


async def run(order: dict[str, object]) -> dict[str, object]:
    """Carries out one order: what, count, connections, rate (0: as fast as possible), and where the
    server is."""
    if order["what"] == "watch":
        return await count_events(order)
    if order["what"] == "delay":
        return await delay_of_events(order)
    if order["what"] == "list":
        return await time_of_list(order)
    connections = [await connect(order, Connection) for _ in range(int(str(order["connections"])))]
    if order["what"] == "given":
        given = order["requests"]
        assert isinstance(given, list)
        work = [base64.b64decode(one) for one in given]
    elif order["what"] == "filled":
        work = list(filled(order))
    else:
        work = list(
            requests(
                str(order["what"]),
                str(order["namespace"]),
                str(order["prefix"]),
                int(str(order["count"])),
            )
        )
    rate = float(str(order.get("rate", 0)))
    if rate:
        latencies, speed = (await offer(connections, work, rate)).latencies, rate
    else:
        speed, latencies = await saturate(connections, work)
    latencies.sort()
    return {
        "speed": speed,
        "p50": latencies[len(latencies) // 2],
        "p99": latencies[int(len(latencies) * 0.99)],
    }


def main() -> int:
    """Reads orders, one JSON object a line, and answers each with one."""
    import uvloop

    for line in sys.stdin:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(run(json.loads(line)))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
