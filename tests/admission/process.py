"""The webhook server as a process, registered with a real API server that knows the batch kinds.

A server that has taken a definition or a registration does not act on it at once: what is here
waits until it does.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from hekla.admission.daemon import DEFAULT_PATHS
from hekla.admission.registry import ADMISSIONS
from hekla.api import crds
from tests.apiserver_process import ApiServerProcess

Tree = dict[str, Any]

BATCH = "/apis/batch.volcano.sh/v1alpha1"
SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
QUEUES, FLOWS = f"{SCHEDULING}/queues", "/apis/flow.volcano.sh/v1alpha1/namespaces/default/jobflows"
ALL = ",".join(ADMISSIONS)
DEFAULT = frozenset(DEFAULT_PATHS.split(","))
PATIENCE = 60.0
"""Seconds that a server may take for what it was told, on a machine that has other things to do."""


class Server(Protocol):
    """What one can ask with a path."""

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, bytes]: ...


def wait_for(what: str, seen: Callable[[], bool], seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not seen():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.02)


def call(
    server: Server, method: str, path: str, tree: Tree | None = None, kind: str = "application/json"
) -> tuple[int, Tree]:
    body = None if tree is None else json.dumps(tree).encode()
    status, answer = server.request(method, path, body, {"Content-Type": kind} if body else None)
    try:
        return status, json.loads(answer)
    except ValueError:
        return status, {"message": answer.decode(errors="replace")}


def install_kinds(server: Server) -> None:
    """Define the batch kinds, and wait until the server serves them all."""
    definitions = crds.all()
    for definition in definitions:
        status, answer = call(
            server, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition
        )
        assert status == 201, answer
    for definition in definitions:
        spec = definition["spec"]
        path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
        wait_for(f"{path} is served", partial(_served, server, path), PATIENCE)


def _served(server: Server, path: str) -> bool:
    return call(server, "GET", path)[0] == 200


def in_force(server: Server, paths: Collection[str] = DEFAULT) -> bool:
    """Whether the server asks the webhooks of these paths, all of them.

    It sees those that change and those that refuse each in the order in which they were registered,
    so the last of each tells.
    """
    changed = call(
        server, "POST", f"{QUEUES}?dryRun=All", _probe("scheduling.volcano.sh/v1beta1", "Queue")
    )[1]
    if "/jobflows/validate" in paths:
        circle = _probe(
            "flow.volcano.sh/v1alpha1",
            "JobFlow",
            flows=[{"name": "a", "dependsOn": {"targets": ["a"]}}],
        )
        refused = call(server, "POST", f"{FLOWS}?dryRun=All", circle)[1]
    else:
        greedy = _probe(
            "scheduling.volcano.sh/v1beta1", "Queue", capability={"cpu": "1"}, deserved={"cpu": "2"}
        )
        refused = call(server, "POST", f"{QUEUES}?dryRun=All", greedy)[1]
    return "reclaimable" in changed.get("spec", {}) and "denied the request" in refused.get(
        "message", ""
    )


def _probe(version: str, kind: str, **spec: Any) -> Tree:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "probe"}, "spec": spec}


class AdmissionProcess:
    def __init__(
        self, server: ApiServerProcess, directory: Path, *flags: str, paths: str = ALL
    ) -> None:
        self.server = server
        self.log = directory / "admission.log"
        self.paths = [path for path in paths.split(",") if path]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "hekla",
                    "admission",
                    f"--kubeconfig={server.internal_kubeconfig}",
                    "--port=0",
                    "--webhook-url=https://127.0.0.1",
                    f"--enabled-admission={paths}",
                    *flags,
                ],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def ready(self) -> AdmissionProcess:
        def registered() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return "the webhooks are registered" in self.log.read_text()

        wait_for("the webhooks are registered", registered, PATIENCE)
        if {"/queues/mutate", "/queues/validate"} <= set(self.paths):
            wait_for("the webhooks are asked", lambda: in_force(self.server, self.paths), PATIENCE)
        return self

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(30)


@contextlib.contextmanager
def admission(
    server: ApiServerProcess, directory: Path, *flags: str, paths: str = ALL
) -> Iterator[AdmissionProcess]:
    process = AdmissionProcess(server, directory, *flags, paths=paths)
    try:
        yield process.ready()
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.process.wait(10)


def make_queue(server: ApiServerProcess, name: str, state: str = "Open", **spec: Any) -> None:
    """A queue in a state, as the queue controller would leave it."""
    tree = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }
    status, answer = call(server, "POST", f"{SCHEDULING}/queues", tree)
    assert status == 201, answer
    patch = {"status": {"state": state}}
    status, answer = call(
        server, "PATCH", f"{SCHEDULING}/queues/{name}/status", patch, "application/merge-patch+json"
    )
    assert status == 200, answer
