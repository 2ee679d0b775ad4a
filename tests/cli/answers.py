"""A server of prepared answers, for commands whose output must be exact to the blank, and the
commands as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from hekla.api.text.times import stamp

Tree = dict[str, Any]

JOBS = "/apis/batch.volcano.sh/v1alpha1"
SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"
FLOW = "/apis/flow.volcano.sh/v1alpha1"
BUS = "/apis/bus.volcano.sh/v1alpha1"
THREE_DAYS_AGO = stamp(time.time() - 3 * 86400 - 60)


class Asked(NamedTuple):
    method: str
    path: str
    query: str
    body: Any


class Answers:
    """`gives[path]` is the object, or the list of items, at a path; `asked` is what came in.
    Creates are echoed."""

    def __init__(self) -> None:
        self.gives: dict[str, Any] = {}
        self.asked: list[Asked] = []
        self.url = ""

    def answer(self, asked: Asked) -> tuple[int, Tree]:
        self.asked.append(asked)
        if asked.method == "POST":
            return 201, asked.body
        found = self.gives.get(asked.path)
        if found is None:
            name = asked.path.rsplit("/", 1)[-1]
            message = f'jobs.batch.volcano.sh "{name}" not found'
            return 404, {
                "kind": "Status",
                "status": "Failure",
                "reason": "NotFound",
                "message": message,
                "code": 404,
            }
        if asked.method == "DELETE":
            return 200, {"kind": "Status", "status": "Success"}
        if isinstance(found, list):
            return 200, {
                "kind": "List",
                "apiVersion": "v1",
                "metadata": {"resourceVersion": "1"},
                "items": found,
            }
        return 200, found


@contextmanager
def answering() -> Iterator[Answers]:
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            target = urlsplit(self.path)
            status, tree = answers.answer(Asked(self.command, target.path, target.query, body))
            content = json.dumps(tree).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = do_PATCH = do_PUT = respond

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    answers.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def command(
    name: str, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run one of the commands as a process, in UTC, without a kubeconfig of the user's."""
    clean = {
        key: value for key, value in os.environ.items() if not key.startswith(("KUBE", "VOLCANO"))
    }
    program = Path(sys.executable).with_name(name)
    return subprocess.run(
        [str(program), *arguments]
        if program.exists()
        else [sys.executable, "-c", START.format(name=name), *arguments],
        env={**clean, "TZ": "UTC", "HOME": "/nonexistent", **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )


START = "from hekla.cli import vcctl; import sys; sys.exit(getattr(vcctl, '{name}' if '{name}' != 'vcctl' else 'main')())"


def vcctl(server: Answers, *words: str) -> CompletedProcess[str]:
    return command("vcctl", *words, "--master", server.url)


def printed(result: CompletedProcess[str]) -> str:
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def job(name: str, namespace: str = "default", **spec: Any) -> Tree:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"},
        "spec": spec,
    }
