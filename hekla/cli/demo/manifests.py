"""The manifests of the demo: what a user would write, with sleeps short enough for a demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

Manifest = dict[str, Any]


def job(
    name: str, tasks: list[Manifest], *, queue: str = "default", min_available: int = 1, **spec: Any
) -> Manifest:
    """A batch job."""
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "volcano",
            "queue": queue,
            "minAvailable": min_available,
            "tasks": tasks,
            **spec,
        },
    }


def task(
    name: str,
    replicas: int,
    command: list[str],
    *,
    cpu: str = "",
    restart: str = "Never",
    image: str = "busybox",
    **fields: Any,
) -> Manifest:
    """A task of a job: `replicas` pods of one container."""
    container: Manifest = {"name": "main", "image": image, "command": command}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    return {
        "name": name,
        "replicas": replicas,
        "template": {"spec": {"containers": [container], "restartPolicy": restart}},
        **fields,
    }


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def queue(name: str, weight: int) -> Manifest:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight, "reclaimable": False},
    }


def hello() -> Manifest:
    return job("hello", [task("greet", 1, shell("echo 'Hello from Hekla!' && sleep 2"))])


def weighted() -> list[Manifest]:
    """Six jobs of eight pods of half a cpu in each of two queues."""
    return [
        job(
            f"job-{letter}-{number}",
            [task("work", 8, shell("sleep 4"), cpu="500m")],
            queue=f"queue-{letter}",
        )
        for letter in "ab"
        for number in range(1, 7)
    ]


def gang(name: str, min_available: int) -> Manifest:
    return job(name, [task("work", 20, shell("sleep 4"), cpu="4")], min_available=min_available)


def workflow() -> Manifest:
    return job(
        "workflow",
        [
            task("task-a", 1, shell("sleep 2; echo 'task-a is done'"), restart="OnFailure"),
            task(
                "task-b",
                1,
                shell("echo 'task-b runs'"),
                restart="OnFailure",
                dependsOn={"name": ["task-a"]},
            ),
        ],
    )


def allreduce() -> Manifest:
    """Four pods that know each other by the svc plugin's names alone."""
    program = Path(__file__).with_name("allreduce.py").read_text()
    return job(
        "allreduce",
        [task("worker", 4, ["python3", "-c", program], image="python")],
        min_available=4,
        plugins={"svc": [], "env": []},
        policies=[{"event": "TaskCompleted", "action": "CompleteJob"}],
    )
