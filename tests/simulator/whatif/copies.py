"""Copies of small clusters, as a scheduler's snapshot makes them."""

from __future__ import annotations

from typing import Any

from hekla.api.text.times import stamp
from hekla.engine.framework.policy import Policy
from hekla.engine.world import policy
from hekla.simulator.whatif.answer import Answer, ask
from hekla.simulator.whatif.changes import read_changes
from hekla.simulator.whatif.copy import ClusterCopy

NOW = 1_000_000_000.0
PREEMPTING = policy(
    plugins=["priority", "gang", "conformance", "predicates"],
    actions="enqueue, allocate, preempt, backfill",
)
SHARING = policy(
    plugins=["priority", "gang", "predicates", "capacity"], actions="enqueue, allocate, backfill"
)


class Small:
    """A copy to which things are added in a word."""

    def __init__(self) -> None:
        self.copy = ClusterCopy({"scheduler_names": ["volcano"]}, NOW)
        self.queue("default")

    def node(self, name: str, cpu: str = "4", **labels: str) -> None:
        named = {key.replace("__", "/").replace("_", "."): value for key, value in labels.items()}
        self.copy.put(
            "Node",
            {
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **named}},
                "spec": {},
                "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}},
            },
        )

    def queue(self, name: str, **spec: Any) -> None:
        self.copy.put(
            "Queue",
            {
                "metadata": {"name": name},
                "spec": {"weight": 1, **spec},
                "status": {"state": "Open"},
            },
        )

    def priority(self, name: str, value: int) -> None:
        self.copy.put("PriorityClass", {"metadata": {"name": name}, "value": value})

    def job(
        self,
        name: str,
        *,
        pods: int = 1,
        cpu: str = "1",
        queue: str = "default",
        priority: str = "",
        on: tuple[str, ...] = (),
        since: float = NOW - 600,
        walltime: str = "",
        phase: str = "Inqueue",
        minimum: int | None = None,
    ) -> None:
        """A job with its PodGroup; its first pods run `on` these nodes."""
        owner = [{"kind": "Job", "name": name, "uid": name, "controller": True}]
        self.copy.put(
            "PodGroup",
            {
                "metadata": {
                    "name": f"{name}-1",
                    "namespace": "default",
                    "uid": f"group-{name}",
                    "creationTimestamp": stamp(since),
                    "ownerReferences": owner,
                    "annotations": {"hekla.io/walltime": walltime} if walltime else {},
                },
                "spec": {
                    "minMember": pods if minimum is None else minimum,
                    "queue": queue,
                    "priorityClassName": priority,
                    "minResources": {"cpu": f"{int(cpu) * pods}"},
                },
                "status": {"phase": "Running" if on else phase},
            },
        )
        value = int(self.copy.of_kind("PriorityClass").get(priority, {}).get("value", 0))
        for number in range(pods):
            node = on[number] if number < len(on) else ""
            self.copy.put("Pod", self.pod(name, number, cpu, priority, value, node, since))

    def pod(
        self, job: str, number: int, cpu: str, priority: str, value: int, node: str, since: float
    ) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "schedulerName": "volcano",
            "priorityClassName": priority,
            "priority": value,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}],
        }
        status: dict[str, Any] = {"phase": "Pending"}
        if node:
            spec["nodeName"] = node
            status = {"phase": "Running", "startTime": stamp(since)}
        return {
            "metadata": {
                "name": f"{job}-main-{number}",
                "namespace": "default",
                "uid": f"{job}-{number}",
                "annotations": {
                    "scheduling.k8s.io/group-name": f"{job}-1",
                    "volcano.sh/task-spec": "main",
                },
                "creationTimestamp": stamp(since),
                "ownerReferences": [{"kind": "Job", "name": job, "uid": job, "controller": True}],
            },
            "spec": spec,
            "status": status,
        }

    def change(self, *texts: str) -> list[str]:
        """Make changes; what became different."""
        return [line for one in read_changes(list(texts)) for line in one.apply(self.copy)]

    def ask(self, job: str, policy: Policy = PREEMPTING) -> Answer:
        return ask(self.copy, policy, f"default/{job}-1")
