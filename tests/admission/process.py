"""The webhook server as a process, registered with a real API server that knows the batch kinds."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hekla.admission.registry import ADMISSIONS
from hekla.api import crds
from tests.apiserver_process import ApiServerProcess

Tree = dict[str, Any]

BATCH = "/apis/batch.volcano.sh/v1alpha1"
SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
ALL = ",".join(ADMISSIONS)


def wait_for(what: str, seen: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def call(server: ApiServerProcess, method: str, path: str, tree: Tree | None = None, kind: str = "application/json") -> tuple[int, Tree]:
    body = None if tree is None else json.dumps(tree).encode()
    status, answer = server.request(method, path, body, {"Content-Type": kind} if body else None)
    try:
        return status, json.loads(answer)
    except ValueError:
        return status, {"message": answer.decode(errors="replace")}


def install_kinds(server: ApiServerProcess) -> None:
    """Define the batch kinds, and wait until the server serves them all."""
    definitions = crds.all()
    for definition in definitions:
        status, answer = call(server, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        assert status == 201, answer
    for definition in definitions:
        spec = definition["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        wait_for(f"{path} is served", lambda path=path: call(server, "GET", path)[0] == 200)  # type: ignore[misc]


class AdmissionProcess:
    def __init__(self, server: ApiServerProcess, directory: Path, *flags: str, paths: str = ALL) -> None:
        self.server = server
        self.log = directory / "admission.log"
        self.paths = [path for path in paths.split(",") if path]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hekla", "admission", f"--kubeconfig={server.internal_kubeconfig}", "--port=0",
                 "--webhook-url=https://127.0.0.1", f"--enabled-admission={paths}", *flags],
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def ready(self) -> AdmissionProcess:
        def registered() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return "the webhooks are registered" in self.log.read_text()

        wait_for("the webhooks are registered", registered)
        return self

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)


@contextlib.contextmanager
def admission(server: ApiServerProcess, directory: Path, *flags: str, paths: str = ALL) -> Iterator[AdmissionProcess]:
    process = AdmissionProcess(server, directory, *flags, paths=paths)
    try:
        yield process.ready()
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.process.wait(10)


def make_queue(server: ApiServerProcess, name: str, state: str = "Open", **spec: Any) -> None:
    """A queue in a state, as the queue controller would leave it."""
    tree = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
    status, answer = call(server, "POST", f"{SCHEDULING}/queues", tree)
    assert status == 201, answer
    patch = {"status": {"state": state}}
    status, answer = call(server, "PATCH", f"{SCHEDULING}/queues/{name}/status", patch, "application/merge-patch+json")
    assert status == 200, answer
