"""Fifty jobs whose every step leaves a mark outside the cluster, so that what happened can be told
from what is reported.

Each container writes one line to `starts/<pod>.<uid>` when it begins, holds a lock named after its
pod for as long as it lives (two at once would show in `overlaps`), and prints numbered lines with
its process id.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hekla.api.trees import Json

SCRIPT = """
exec 9>"{marks}/locks/$POD"
flock -n 9 || echo "$POD $POD_UID" >>"{marks}/overlaps"
echo "$$ $(date +%s.%N)" >>"{marks}/starts/$POD.$POD_UID"
{first}
line=0
while [ $line -lt {lines} ]; do
  echo "$POD $$ $line"
  line=$((line + 1))
  sleep {pause} 9>&-
done
{last}
"""

ONCE = 'mkdir "{marks}/tried/{key}" 2>/dev/null && attempt=1 || attempt=2'
"""Tells the first attempt from the second: `mkdir` succeeds once."""

MEET = """
for host in $(echo "$VC_WORKER_HOSTS" | tr , ' '); do
  tries=0
  until getent hosts "$host" >/dev/null; do
    tries=$((tries + 1)); [ $tries -lt 300 ] || { echo "$host is unknown"; exit 9; }
    sleep 0.2 9>&-
  done
done
touch "{marks}/met/$POD"
"""


@dataclass(frozen=True)
class Story:
    """One job and how it ends: pods by name with their exit codes, restarts of their containers and
    lines of log."""

    manifest: Json
    phase: str
    pods: dict[str, int | None] = field(default_factory=dict)
    """Exit code of each pod that is left at the end; None where it must be gone."""
    lines: int = 0
    restarts: int = 0
    """Of each container by its restart policy."""
    retries: int = 0
    """Of the job by its policies."""
    runs: dict[str, int] = field(default_factory=dict)
    """How many pods of each name are ever made."""

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


def task(name: str, replicas: int, script: str, restart: str = "Never", **fields: Any) -> Json:
    variables = [
        {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for variable, path in (("POD", "metadata.name"), ("POD_UID", "metadata.uid"))
    ]
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", script],
        "env": variables,
        "resources": {"requests": {"cpu": "100m"}},
    }
    spec = {"containers": [container], "restartPolicy": restart, "terminationGracePeriodSeconds": 2}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **fields}


def job(name: str, tasks: list[Json], least: int = 1, **spec: Any) -> Json:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "schedulerName": "volcano",
            "queue": "default",
            "minAvailable": least,
            "tasks": tasks,
            **spec,
        },
    }


class Workload:
    """Makes the stories; `seconds` is how long the longest pod prints."""

    def __init__(self, marks: Path, dice: random.Random, seconds: int, pause: float = 1.0) -> None:
        self.marks, self.dice, self.seconds, self.pause = marks, dice, seconds, pause
        for name in ("locks", "starts", "tried", "met"):
            (marks / name).mkdir(parents=True)

    def script(self, lines: int, first: str = "", last: str = "") -> str:
        def fill(text: str) -> str:
            return text.replace("{marks}", str(self.marks))

        return (
            fill(SCRIPT.replace("{first}", first).replace("{last}", last))
            .replace("{lines}", str(lines))
            .replace("{pause}", str(self.pause))
        )

    def length(self) -> int:
        """Lines of a pod: between half of the time and all of it."""
        return int(self.dice.randint(self.seconds // 2, self.seconds) / self.pause)

    def fifty(self) -> list[Story]:
        """The jobs in the order in which they are created."""
        makers = [
            *[self.plain] * 20,
            *[self.gang] * 8,
            *[self.failing] * 6,
            *[self.restarting] * 6,
            *[self.aborting] * 4,
            *[self.ordered] * 4,
            *[self.repeating] * 2,
        ]
        self.dice.shuffle(makers)
        return [maker(f"{maker.__name__}-{number}") for number, maker in enumerate(makers)]

    def plain(self, name: str) -> Story:
        lines = self.length()
        pod = f"{name}-work-0"
        return Story(
            job(name, [task("work", 1, self.script(lines))]),
            "Completed",
            {pod: 0},
            lines,
            runs={pod: 1},
        )

    def gang(self, name: str) -> Story:
        """Three pods that start together and find each other by name."""
        lines = self.length()
        pods = [f"{name}-worker-{index}" for index in range(3)]
        made = job(
            name, [task("worker", 3, self.script(lines, MEET))], 3, plugins={"svc": [], "env": []}
        )
        return Story(made, "Completed", dict.fromkeys(pods, 0), lines, runs=dict.fromkeys(pods, 1))

    def failing(self, name: str) -> Story:
        """Ends with a code of its own, and nobody does anything about it."""
        lines = self.length()
        pod = f"{name}-work-0"
        return Story(
            job(name, [task("work", 1, self.script(lines, last="exit 3"))]),
            "Failed",
            {pod: 3},
            lines,
            runs={pod: 1},
        )

    def restarting(self, name: str) -> Story:
        """Fails once, which restarts the job, and then does well."""
        lines = self.length() // 2
        pod = f"{name}-work-0"
        script = self.script(lines, ONCE.replace("{key}", name), "[ $attempt = 2 ] || exit 4")
        made = job(
            name,
            [task("work", 1, script)],
            policies=[{"event": "PodFailed", "action": "RestartJob"}],
        )
        return Story(made, "Completed", {pod: 0}, lines, retries=1, runs={pod: 2})

    def aborting(self, name: str) -> Story:
        """One of two pods fails, which ends the other."""
        fails, waits = f"{name}-fails-0", f"{name}-waits-0"
        lines = self.length() // 2
        made = job(
            name,
            [
                task("fails", 1, self.script(lines, last="exit 5")),
                task("waits", 1, self.script(10_000)),
            ],
            2,
            policies=[{"event": "PodFailed", "action": "AbortJob"}],
        )
        return Story(made, "Aborted", {fails: 5, waits: None}, lines, runs={fails: 1, waits: 1})

    def ordered(self, name: str) -> Story:
        """The second task is made only when the first runs."""
        lines = self.length()
        first, second = f"{name}-first-0", f"{name}-second-0"
        made = job(
            name,
            [
                task("first", 1, self.script(lines)),
                task("second", 1, self.script(lines), dependsOn={"name": ["first"]}),
            ],
        )
        return Story(made, "Completed", {first: 0, second: 0}, lines, runs={first: 1, second: 1})

    def repeating(self, name: str) -> Story:
        """The container fails once and is started again in the same pod."""
        lines = self.length() // 2
        pod = f"{name}-work-0"
        script = self.script(lines, ONCE.replace("{key}", name), "[ $attempt = 2 ] || exit 6")
        return Story(
            job(name, [task("work", 1, script, "OnFailure")]),
            "Completed",
            {pod: 0},
            lines,
            restarts=1,
            runs={pod: 1},
        )


def starts_of(marks: Path, pod: str) -> Iterator[list[float]]:
    """For each pod of this name that was ever made: the times at which its container began."""
    for path in (marks / "starts").iterdir():
        if path.name.rpartition(".")[0] == pod:
            yield [float(line.split()[1]) for line in path.read_text().splitlines()]
