"""Trees of plain files that look like cgroups, and the pods that live in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hekla.agent.cgroups import Cgroups, Driver, File, Version
from hekla.agent.handlers.context import Context
from hekla.agent.pods import Pod
from hekla.api.trees import Json

V1 = {
    "cpu": {
        "cpu.shares": "1024",
        "cpu.idle": "0",
        "cpu.cfs_quota_us": "-1",
        "cpu.cfs_burst_us": "0",
        "cgroup.procs": "",
    },
    "memory": {
        "memory.limit_in_bytes": "9223372036854771712",
        "memory.soft_limit_in_bytes": "9223372036854771712",
        "cgroup.procs": "",
    },
}
V2 = {
    "": {
        "cpu.weight": "100",
        "cpu.idle": "0",
        "cpu.max": "max 100000",
        "cpu.max.burst": "0",
        "memory.max": "max",
        "memory.high": "max",
        "memory.low": "0",
        "memory.min": "0",
        "cgroup.procs": "",
    }
}


def pod_tree(
    name: str = "p",
    *,
    level: str = "",
    qos_class: str = "BestEffort",
    containers: list[Json] | None = None,
    annotations: dict[str, str] | None = None,
    uid: str = "",
) -> Json:
    """A ready pod on node n1 whose containers are c0, c1 ..., with these resources."""
    resources = containers if containers is not None else [{}]
    marks = {**({"volcano.sh/qos-level": level} if level else {}), **(annotations or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-of-{name}",
            "annotations": marks,
        },
        "spec": {
            "nodeName": "n1",
            "containers": [
                {"name": f"c{index}", "image": "busybox", "resources": each}
                for index, each in enumerate(resources)
            ],
        },
        "status": status(name, qos_class, len(resources)),
    }


def status(name: str, qos_class: str = "BestEffort", containers: int = 1) -> Json:
    """Of a pod that is ready."""
    return {
        "phase": "Running",
        "qosClass": qos_class,
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": f"c{index}",
                "image": "busybox",
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "containerID": f"containerd://{name}-{index}",
            }
            for index in range(containers)
        ],
    }


def pod(name: str = "p", **more: Any) -> Pod:
    return msgspec.convert(pod_tree(name, **more), Pod)


def batch(request: int | None = None, limit: int | None = None, memory: int | None = None) -> Json:
    """Resources of a container: batch cpu and the limit of batch memory."""
    requests, limits = {}, {}
    if request is not None:
        requests["kubernetes.io/batch-cpu"] = str(request)
    if limit is not None:
        limits["kubernetes.io/batch-cpu"] = str(limit)
    if memory is not None:
        limits["kubernetes.io/batch-memory"] = str(memory)
    return {"requests": requests, "limits": limits}


class Trees:
    """Cgroups in a temporary directory."""

    def __init__(
        self, root: Path, version: Version = Version.V2, driver: Driver = Driver.CGROUPFS
    ) -> None:
        self.cgroups = Cgroups(version, driver, root)
        self.files = V1 if version is Version.V1 else V2
        root.mkdir(parents=True, exist_ok=True)
        if version is Version.V2:
            (root / "cgroup.controllers").write_text("cpu memory")
        for qos_class in ("", "BestEffort", "Burstable"):
            self.make(self.cgroups.qos_root(qos_class))

    def make(self, directory: str, without: tuple[str, ...] = ()) -> None:
        """A directory with the files that the kernel has in it."""
        for controller, files in self.files.items():
            path = self.cgroups.root / controller / directory
            path.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                if name not in without:
                    (path / name).write_text(f"{text}\n")

    def add(self, pod: Pod, without: tuple[str, ...] = ()) -> Pod:
        """The pod's directories."""
        self.make(self.cgroups.pod(pod), without)
        for container in pod.spec.containers:
            self.make(self.cgroups.container(pod, container.name), without)
        return pod

    def put(self, directory: str, file: File, text: str) -> None:
        self.cgroups.path(directory, file).write_text(text)

    def says(self, directory: str, file: File) -> str:
        return self.cgroups.read(directory, file)

    def context(self, **more: Any) -> Context:
        return Context(self.cgroups, **more)
