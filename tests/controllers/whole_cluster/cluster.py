"""What stories do in a cluster and see of it, in the words of its API."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.cluster.api import Answer, Api, Tree

BATCH = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
PATIENCE = 60.0


def container(command: str = "", *, cpu: str = "100m", **more: Any) -> Tree:
    """A container that fake nodes run: for ever, or as its command says."""
    run = {"command": ["sh", "-c", command]} if command else {}
    return {
        "name": "main",
        "image": "busybox",
        "resources": {"requests": {"cpu": cpu}},
        **run,
        **more,
    }


def a_task(
    name: str = "t",
    replicas: int = 1,
    command: str = "",
    *,
    cpu: str = "100m",
    spec: Tree | None = None,
    **more: Any,
) -> Tree:
    template = {
        "spec": {
            "containers": [container(command, cpu=cpu)],
            "restartPolicy": "Never",
            **(spec or {}),
        }
    }
    return {"name": name, "replicas": replicas, "template": template, **more}


def a_job(name: str, *tasks: Tree, **spec: Any) -> Tree:
    body = {
        "minAvailable": sum(task["replicas"] for task in tasks),
        "schedulerName": "volcano",
        "tasks": list(tasks),
        **spec,
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": body,
    }


def on(event: str, action: str, **more: Any) -> Tree:
    return {"event": event, "action": action, **more}


class WholeCluster:
    """One cluster."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def ready(self, nodes: int) -> WholeCluster:
        """All parts are at work: the nodes are there, the default queue is open, a bad job is
        refused."""
        self.until(lambda: len(self.items("/api/v1/nodes")) >= nodes)
        self.until(lambda: self.api.get(f"{QUEUES}/default").status == 200)
        self.until(lambda: self.open("default"))
        bad = a_job("probe", a_task("a"), a_task("a"))
        self.until(
            lambda: self.api.post(BATCH, bad, dryRun="All").status == 400,
            lambda: self.api.post(BATCH, bad, dryRun="All"),
        )
        self.nodes = [node["metadata"]["name"] for node in self.items("/api/v1/nodes")]
        return self

    def until(
        self, what: Callable[[], Any], about: Callable[[], Any] = str, seconds: float = PATIENCE
    ) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            found = what()
            if found:
                return found
            assert time.monotonic() < deadline, f"did not come about: {about()}"
            time.sleep(0.05)

    def items(self, path: str, **query: Any) -> list[Tree]:
        answer = self.api.get(path, **query)
        return list(answer.tree.get("items") or []) if answer.status == 200 else []

    def run(self, name: str, *tasks: Tree, **spec: Any) -> Tree:
        return self.api.create(BATCH, a_job(name, *tasks, **spec))

    def refused(self, tree: Tree) -> Answer:
        answer = self.api.post(BATCH, tree)
        assert answer.status >= 400, answer
        return answer

    def job(self, name: str) -> Tree:
        return self.api.get(f"{BATCH}/{name}").tree

    def phase(self, name: str, phase: str) -> Tree:
        """Wait for a job's phase; gives the job."""
        self.until(
            lambda: self.state(name) == phase, lambda: (name, phase, self.job(name).get("status"))
        )
        return self.job(name)

    def state(self, name: str) -> str:
        return str(((self.job(name).get("status") or {}).get("state") or {}).get("phase") or "")

    def history(self, name: str) -> list[str]:
        """The phases that a job has been in, each at its last time."""
        return [
            condition["status"] for condition in self.job(name)["status"].get("conditions") or []
        ]

    def pods(self, job: str) -> dict[str, Tree]:
        found = self.items(PODS, labelSelector=f"volcano.sh/job-name={job}")
        return {pod["metadata"]["name"]: pod for pod in found}

    def end(self, pod: str, code: int = 0) -> None:
        """What a node would report of a container that has ended.  A pod that ends by itself may do
        so before a job was seen running."""
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        entry = {
            "name": "main",
            "image": "busybox",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": state,
        }
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [entry]}
        answer = self.api.patch(f"{PODS}/{pod}/status", {"status": status})
        assert answer.status == 200, answer

    def queue(self, name: str, **spec: Any) -> None:
        """Make a queue, and wait until it is open."""
        kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
        self.api.create(QUEUES, {**kind, "metadata": {"name": name}, "spec": {"weight": 1, **spec}})
        self.until(lambda: self.open(name))

    def open(self, queue: str) -> bool:
        return bool(
            (self.api.get(f"{QUEUES}/{queue}").tree.get("status") or {}).get("state") == "Open"
        )

    def pod_group(self, name: str, **spec: Any) -> None:
        kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
        self.api.create(GROUPS, {**kind, "metadata": {"name": name}, "spec": spec})

    def group(self, job: Tree) -> Tree:
        """The PodGroup of a job; empty while there is none."""
        answer = self.api.get(f"{GROUPS}/{job['metadata']['name']}-{job['metadata']['uid']}")
        return answer.tree if answer.status == 200 else {}

    def cordon(self, yes: bool) -> None:
        """No pod is placed anywhere, or again everywhere."""
        for node in self.nodes:
            assert (
                self.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": yes}}).status
                == 200
            )

    def remove(self, name: str) -> None:
        """Delete a job, and wait until nothing of it is left."""
        job = self.job(name)
        assert self.api.delete(f"{BATCH}/{name}", {"propagationPolicy": "Background"}).status in (
            200,
            202,
        )
        self.until(lambda: self.api.get(f"{BATCH}/{name}").status == 404)
        self.until(lambda: not self.pods(name), lambda: sorted(self.pods(name)))
        group = f"{GROUPS}/{name}-{job['metadata']['uid']}"
        self.until(lambda: self.api.get(group).status == 404, lambda: self.api.get(group).tree)

    def events(self, kind: str, name: str) -> list[Tree]:
        return self.items(
            EVENTS, fieldSelector=f"involvedObject.kind={kind},involvedObject.name={name}"
        )
