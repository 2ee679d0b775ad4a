"""Checklist 139 and 140, and what stands beside them: exec, attach, cp, port-forward and proxy, as
kubectl's users know them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pty
import random
import re
import select
import struct
import subprocess
import termios
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.api import JSON_PATCH, PATIENCE, STRATEGIC, Api, eventually
from tests.cluster.conftest import Kubectl, Namespace
from tests.cluster.objects import container, pod, shell

FIRST_MESSAGE = re.compile(rb"^E\d{4} .* Unknown stream id 1, discarding message\n", re.MULTILINE)
"""A busy kubectl says this of the empty message with which servers begin, Kubernetes' own too,
where it has no stream for it yet."""
PROTOCOLS = pytest.mark.parametrize("websockets", ["true", "false"], ids=["WebSocket", "SPDY"])
SERVER = (
    "import http.server,sys\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "  def do_GET(self):\n"
    "    body = self.rfile.read(int(self.headers.get('Content-Length') or 0))\n"
    "    text = f'{self.command} {self.path} {body.decode()}'.encode()\n"
    "    self.send_response(200); self.send_header('Content-Length', str(len(text))); self.end_headers(); self.wfile.write(text)\n"
    "  do_POST = do_PUT = do_DELETE = do_PATCH = do_GET\n"
    "  def log_message(self, *_): pass\n"
    "http.server.ThreadingHTTPServer((sys.argv[1], 8123), H).serve_forever()\n"
)
"""Says what it was asked."""


class Room:
    """A pod to go into."""

    def __init__(self, api: Api, ns: Namespace, kubectl: Kubectl, name: str) -> None:
        self.api, self.ns, self.kubectl, self.name = api, ns, kubectl, name

    def run(
        self, *arguments: str, stdin: bytes = b"", websockets: str = "true", seconds: float = 30
    ) -> subprocess.CompletedProcess[bytes]:
        """kubectl with bytes."""
        names = ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS")
        done = subprocess.run(
            [self.kubectl.program, *self.kubectl.common, "-n", self.ns.name, *arguments],
            input=stdin,
            capture_output=True,
            timeout=seconds,
            env={**os.environ, **dict.fromkeys(names, websockets)},
            check=False,
        )
        done.stderr = FIRST_MESSAGE.sub(b"", done.stderr)
        return done


@pytest.fixture(scope="module")
def room(api: Api, ns: Namespace, kubectl: Kubectl, real_node: str) -> Room:
    inside = shell(
        "room",
        real_node,
        "trap 'exit 0' TERM; sleep 600 & wait",
        initContainers=[container("sh", "-c", "sleep 600", name="side", restartPolicy="Always")],
    )
    inside["spec"]["containers"][0]["env"] = [{"name": "COLOR", "value": "green"}]
    api.create(ns.path("pods"), inside)
    api.wait(ns.path("pods", "room"), lambda tree: tree["status"]["phase"] == "Running")
    return Room(api, ns, kubectl, "room")


@PROTOCOLS
def test_item_139_exit_codes_and_streams(room: Room, websockets: str) -> None:
    done = room.run(
        "exec",
        "room",
        "-c",
        "c",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2; exit 3",
        websockets=websockets,
    )
    assert (done.returncode, done.stdout) == (3, b"out\n")
    assert done.stderr == b"err\ncommand terminated with exit code 3\n"
    done = room.run(
        "exec", "-i", "room", "-c", "c", "--", "cat", stdin=b"typed", websockets=websockets
    )
    assert (done.returncode, done.stdout) == (0, b"typed")


@PROTOCOLS
def test_item_139_nothing_is_lost_on_the_way(room: Room, websockets: str) -> None:
    data = random.Random(7).randbytes(8 << 20)
    there = room.run(
        "exec", "-i", "room", "-c", "c", "--", "sha256sum", stdin=data, websockets=websockets
    )
    assert there.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    back = room.run(
        "exec",
        "-i",
        "room",
        "-c",
        "c",
        "--",
        "sh",
        "-c",
        "cat; echo end >&2",
        stdin=data,
        websockets=websockets,
    )
    assert back.stdout == data and back.stderr == b"end\n"


def test_item_139_the_place_of_the_command_is_the_containers(room: Room) -> None:
    done = room.run(
        "exec",
        "room",
        "-c",
        "c",
        "--",
        "sh",
        "-c",
        "echo $COLOR; hostname; cat /proc/1/cmdline | tr '\\0' ' '",
    )
    color, host, first = done.stdout.decode().splitlines()
    assert (color, host) == ("green", "room") and "trap" in first
    assert room.run("exec", "room", "-c", "side", "--", "sh", "-c", "echo $COLOR").stdout == b"\n"


def test_item_139_refusals_have_reasons(room: Room, fake_node: str, own: bool) -> None:
    def said(*arguments: str) -> str:
        done = room.run("exec", *arguments)
        assert done.returncode == 1
        return done.stderr.decode()

    assert 'pods "nobody" not found' in said("nobody", "--", "true")
    assert "container zz is not valid for pod room" in said("room", "-c", "zz", "--", "true")
    room.api.create(room.ns.path("pods"), shell("unbound", "", "true"))
    assert "pod unbound does not have a host assigned" in said("unbound", "--", "true")
    room.api.create(
        room.ns.path("pods"),
        pod("pretended", nodeName=fake_node, tolerations=[{"operator": "Exists"}]),
    )
    room.api.wait(
        room.ns.path("pods", "pretended"), lambda tree: tree["status"]["phase"] == "Running"
    )
    refused = said("pretended", "--", "true")
    # An API server of others only knows that nobody answers at the node's address.
    assert fake_node in refused or not own
    waiting = shell(
        "waiting",
        room.api.get(room.ns.path("pods", "room")).tree["spec"]["nodeName"],
        "true",
        initContainers=[container("sleep", "60", name="before")],
    )
    room.api.create(room.ns.path("pods"), waiting)
    room.api.wait(
        room.ns.path("pods", "waiting"), lambda tree: tree["status"].get("initContainerStatuses")
    )
    assert 'container not found ("c")' in said("waiting", "-c", "c", "--", "true")


def test_item_139_a_reader_may_not_run_commands(room: Room) -> None:
    reader = room.api.as_user("reader")
    role = {
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["get"]}],
    }
    binding = {
        "metadata": {"name": "reader"},
        "subjects": [{"kind": "User", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
    }
    for plural, tree in (("roles", role), ("rolebindings", binding)):
        room.api.create(room.ns.path(f"rbac.authorization.k8s.io/v1/{plural}"), tree)
    path = room.ns.path("pods", "room")
    eventually(lambda: reader.get(path).status == 200)
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
    }
    refused = reader.request(
        "GET", f"{path}/exec?command=true&stdout=true&container=c", None, upgrade
    )
    assert refused.status == 403 and refused.message.startswith('pods "room" is forbidden: ')


class Screen:
    """A terminal on which kubectl runs."""

    def __init__(
        self, kubectl: Kubectl, *arguments: str, rows: int = 24, columns: int = 80
    ) -> None:
        self.ours, theirs = pty.openpty()
        self.size(rows, columns)
        self.seen = b""
        self.process = subprocess.Popen(
            [kubectl.program, *kubectl.common, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def shows(self, pattern: str, seconds: float = PATIENCE) -> str:
        """Waits for it, and forgets what was seen before."""
        deadline = time.monotonic() + seconds
        while (found := re.search(pattern.encode(), self.seen)) is None:
            assert time.monotonic() < deadline, f"{pattern!r} is not in {self.seen!r}"
            if select.select([self.ours], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.ours, 4096)
                except OSError as error:
                    raise AssertionError(f"{pattern!r} is not in {self.seen!r}") from error
        self.seen = self.seen[found.end() :]
        return found.group().decode()

    def ends(self, seconds: float = PATIENCE) -> int:
        return self.process.wait(seconds)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)


@contextmanager
def screen(room: Room, *arguments: str, **size: int) -> Iterator[Screen]:
    made = Screen(room.kubectl, "-n", room.ns.name, *arguments, **size)
    try:
        yield made
    finally:
        made.close()


def test_item_139_a_terminal_and_its_size(room: Room) -> None:
    with screen(room, "exec", "-it", "room", "-c", "c", "--", "sh", rows=31, columns=97) as shown:
        shown.type("stty size; test -t 0 && echo is-a-tty\n")
        shown.shows("31 97")
        shown.shows("\nis-a-tty")
        shown.size(40, 120)
        os.kill(shown.process.pid, 28)  # SIGWINCH, which a terminal would send
        shown.type("while [ \"$(stty size)\" != '40 120' ]; do sleep 0.1; done; echo gro''wn\n")
        shown.shows("grown")
        shown.type("sh -c 'echo asl\"\"eep; exec sleep 100'\n")
        shown.shows("asleep")  # and is what the terminal interrupts
        shown.type("\x03echo inter''rupted\n")
        shown.shows("interrupted")
        shown.type("exit 5\n")
        assert shown.ends() == 5


def test_item_140_attach(room: Room, real_node: str) -> None:
    listener = shell(
        "listener", real_node, "while read line; do echo heard $line; done; echo bye; exit 0"
    )
    listener["spec"]["containers"][0].update(stdin=True, stdinOnce=True)
    room.api.create(room.ns.path("pods"), listener)
    room.api.wait(
        room.ns.path("pods", "listener"), lambda tree: tree["status"]["phase"] == "Running"
    )
    done = room.run("attach", "-i", "listener", stdin=b"one\ntwo\n")
    assert done.stdout == b"heard one\nheard two\nbye\n", done.stderr
    ended = room.api.wait(
        room.ns.path("pods", "listener"), lambda tree: tree["status"]["phase"] == "Succeeded"
    )
    assert ended["status"]["phase"] == "Succeeded"
    assert room.run("logs", "listener").stdout == b"heard one\nheard two\nbye\n"


def test_attach_shows_streams_apart_where_a_pod_keeps_them_so(room: Room, real_node: str) -> None:
    listener = shell(
        "apart",
        real_node,
        "while read line; do echo heard $line; echo seen $line >&2; done; exit 0",
    )
    listener["metadata"]["annotations"] = {"hekla.io/split-log-streams": "true"}
    listener["spec"]["containers"][0].update(stdin=True, stdinOnce=True)
    room.api.create(room.ns.path("pods"), listener)
    room.api.wait(room.ns.path("pods", "apart"), lambda tree: tree["status"]["phase"] == "Running")
    done = room.run("attach", "-i", "apart", stdin=b"one\ntwo\n")
    assert done.stdout == b"heard one\nheard two\n", done.stderr
    assert done.stderr.endswith(b"seen one\nseen two\n")


def test_item_140_run_with_a_terminal(room: Room, real_node: str) -> None:
    where = f'--overrides={{"spec":{{"nodeName":"{real_node}"}}}}'
    with screen(
        room,
        "run",
        "session",
        "-it",
        "--rm",
        "--restart=Never",
        "--image=busybox",
        where,
        "--",
        "sh",
    ) as shown:
        shown.shows("pressing enter|#|\\$")
        shown.type("echo an''swer; tty; exit 7\n")
        shown.shows("answer")
        shown.shows("/dev/pts/|/dev/console")
        assert shown.ends() == 7
    room.api.gone(room.ns.path("pods", "session"))


def test_item_140_copies_both_ways(room: Room, tmp_path: Path) -> None:
    data = random.Random(8).randbytes(3 << 20)
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "file").write_bytes(data)
    made = room.run("exec", "room", "-c", "c", "--", "mktemp", "-d").stdout.decode().strip()
    try:
        assert room.run("cp", "-c", "c", str(tmp_path / "tree"), f"room:{made}/in").returncode == 0
        assert room.run("cp", "-c", "c", f"room:{made}/in", str(tmp_path / "out")).returncode == 0
        assert (tmp_path / "out" / "deep" / "file").read_bytes() == data
    finally:
        room.run("exec", "room", "-c", "c", "--", "rm", "-rf", made)


@pytest.fixture(scope="module")
def server(room: Room, real_node: str) -> str:
    """A pod that answers HTTP, with a service before it."""
    serving = shell("server", real_node, 'exec python3 -c "$SERVER" "$POD_IP"')
    own = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    serving["spec"]["containers"][0].update(
        env=[{"name": "SERVER", "value": SERVER}, own],
        ports=[{"containerPort": 8123, "name": "web"}],
        readinessProbe={"tcpSocket": {"port": 8123}, "periodSeconds": 1},
    )
    room.api.create(room.ns.path("pods"), serving)
    ports = [{"name": "http", "port": 80, "targetPort": 8123}]
    service = {
        "metadata": {"name": "server"},
        "spec": {"selector": {"app": "server"}, "ports": ports},
    }
    room.api.create(room.ns.path("services"), service)
    room.api.wait(
        room.ns.path("pods", "server"),
        lambda tree: any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in tree["status"].get("conditions", [])
        ),
    )
    return "server"


@PROTOCOLS
def test_item_140_port_forward(room: Room, server: str, websockets: str) -> None:
    process = subprocess.Popen(
        [
            room.kubectl.program,
            *room.kubectl.common,
            "-n",
            room.ns.name,
            "port-forward",
            "pod/server",
            ":8123",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "KUBECTL_PORT_FORWARD_WEBSOCKETS": websockets},
    )
    try:
        assert process.stdout is not None
        found = re.match(r"Forwarding from 127.0.0.1:(\d+) -> 8123", process.stdout.readline())
        assert found is not None
        for number in range(5):
            body = bytes(str(number), "ascii") * 50_000
            with urllib.request.urlopen(
                f"http://127.0.0.1:{found[1]}/{number}", data=body, timeout=10
            ) as answer:
                assert answer.read() == b"POST /%d " % number + body
    finally:
        process.kill()
        process.communicate()


def test_the_proxy_keeps_method_path_and_query(room: Room, server: str) -> None:
    pods, services = (
        room.ns.path("pods", "server:8123", "proxy"),
        room.ns.path("services", "http:server:80", "proxy"),
    )
    assert room.api.get(f"{pods}/a%20b/c/?x=1&y=%2F").text == "GET /a%20b/c/?x=1&y=%2F "
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        # Over a fresh connection: a proxy may end the one that it has answered on.
        assert (
            Api(room.api.kubeconfig).request(method, f"{pods}/z", b"body").text
            == f"{method} /z body"
        )
    eventually(lambda: room.api.get(f"{services}/svc").text == "GET /svc ")
    dead = room.api.get(room.ns.path("pods", "server:9", "proxy") + "/")
    assert dead.status in (500, 503) and "connect" in dead.text
    node = room.api.get(room.ns.path("pods", "server")).tree["spec"]["nodeName"]
    health = room.api.get(f"/api/v1/nodes/{node}/proxy/healthz")
    if health.status == 400 and health.message == "address not allowed":
        pytest.skip("this server goes to no node with a loopback address")
    assert health.text == "ok"


def test_a_debugger_joins_a_running_pod(room: Room) -> None:
    with screen(
        room,
        "debug",
        "-it",
        "room",
        "--profile=general",
        "--image=busybox",
        "-c",
        "guest",
        "--",
        "sh",
    ) as shown:
        shown.shows("pressing enter|#|\\$")
        shown.type("echo with''in; exit 2\n")
        shown.shows("within")
        shown.ends()
    path = room.ns.path("pods", "room")
    pod = room.api.wait(
        path, lambda tree: "terminated" in tree["status"]["ephemeralContainerStatuses"][0]["state"]
    )
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["ephemeralContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 2
    gone = room.api.patch(
        f"{path}/ephemeralcontainers",
        [{"op": "remove", "path": "/spec/ephemeralContainers"}],
        JSON_PATCH,
    )
    assert gone.status == 422 and "may not be removed" in gone.message
    more = {
        "spec": {
            "ephemeralContainers": [{"name": "c", "image": "busybox"}],
            "nodeName": "elsewhere",
        }
    }
    taken = room.api.patch(f"{path}/ephemeralcontainers", more, STRATEGIC)
    assert taken.status == 422 and 'Duplicate value: "c"' in taken.message
