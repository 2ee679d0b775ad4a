"""The ray plugin: head and workers start as one Ray cluster, with a Service before the head
(reference: controllers 3.8)."""

from __future__ import annotations

from collections.abc import Sequence

from hekla.api import batch, names
from hekla.api.kubernetes import core
from hekla.controllers.job.plugins.hosts import host, task_named
from hekla.controllers.job.plugins.plugin import (
    Dependent,
    Plugin,
    PluginError,
    Tree,
    add_port,
    main_containers,
    object_meta,
)
from hekla.controllers.job.plugins.svc import own_pods
from hekla.controllers.job.pod_template import Slot


class Ray(Plugin):
    name = "ray"
    defaults = {
        "head": "head",
        "headContainer": "head",
        "worker": "worker",
        "workerContainer": "worker",
        "port": 6379,
        "dashboardPort": 8265,
        "clientPort": 10001,
    }

    def __init__(self, given: Sequence[str]) -> None:
        super().__init__(given)
        self.ports = {
            "gcs": self.arguments.number("port"),
            "dashboard": self.arguments.number("dashboardPort"),
            "client-server": self.arguments.number("clientPort"),
        }

    def dependents(self, job: batch.Job) -> list[Dependent]:
        name = names.ray_head_service(job.metadata.name)
        selector = {**own_pods(job), names.TASK_SPEC: self.arguments.text("head")}
        ports = [
            {"name": port, "port": number, "protocol": "TCP", "targetPort": port}
            for port, number in self.ports.items()
        ]
        body = {"metadata": object_meta(job, name), "spec": {"selector": selector, "ports": ports}}
        return [Dependent(core.SERVICE, name, make=lambda: body)]

    def complete(self, job: batch.Job, task: batch.TaskSpec, pod: Tree, slot: Slot) -> None:
        head = task_named(job, self.arguments.text("head"))
        if head is None:
            raise PluginError(
                f"job {job.metadata.name} doesn't have head task {self.arguments.text('head')}"
            )
        if task.name == head.name:
            container = _container(pod, self.arguments.text("headContainer"))
            if container is not None:
                container["command"] = _shell(
                    f"ray start --head --block --dashboard-host=0.0.0.0 --port={self.ports['gcs']} "
                    f"--dashboard-port={self.ports['dashboard']} --ray-client-server-port={self.ports['client-server']}"
                )
                for name, port in self.ports.items():
                    add_port(container, name, port)
        elif task.name == self.arguments.text("worker"):
            container = _container(pod, self.arguments.text("workerContainer"))
            if container is not None:
                address = f"{host(job.metadata.name, head, 0)}:{self.ports['gcs']}"
                container["command"] = _shell(f"ray start --block --address={address}")


def _container(pod: Tree, name: str) -> Tree | None:
    return next(
        (container for container in main_containers(pod) if container.get("name") == name), None
    )


def _shell(command: str) -> list[str]:
    return ["sh", "-c", command]
