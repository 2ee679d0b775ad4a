"""What `nodeFit: engine` costs in a large cluster: the copy of the scheduler's knowledge, once a cycle, and a
question to it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.descheduler.cycle import NODES, NOW, PODS_EACH, node, pod
from benchmarks.figure import Aim, Figure
from hekla.api.trees import Json
from hekla.descheduler.plugins.draining import LANDS_BADLY
from hekla.descheduler.reading import pod_of
from hekla.descheduler.scheduler_copy import SchedulerCopy
from hekla.engine.tape import Frame

COPY, QUESTION = "descheduler.engine_copy", "descheduler.engine_question"
FIGURES = (COPY, QUESTION)
AIMS = [
    Aim(
        COPY, "<= 5", "s", 8, "nodeFit: engine: the copy of what the scheduler knows, once a cycle"
    ),
    Aim(QUESTION, "<= 5", "ms", 8, "a question to it, refused and taken back"),
]
QUESTIONS = 100


def grouped(number: int) -> Json:
    """A pod of the cluster, as one of a PodGroup that the scheduler knows."""
    made = pod(number)
    made["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": f"app-{number // 10}"}
    made["metadata"]["namespace"] = "default"
    made["spec"]["schedulerName"] = "volcano"
    return made


def group(number: int) -> Json:
    return {
        "metadata": {"name": f"app-{number}", "namespace": "default", "uid": f"app-{number}"},
        "spec": {"minMember": 1, "queue": "default"},
        "status": {"phase": "Running"},
    }


def measure(names: set[str]) -> Iterator[Figure]:
    if names.isdisjoint(FIGURES):
        return
    pods = [grouped(number) for number in range(NODES * PODS_EACH)]
    frames: list[Frame] = [
        ("header", 1, "0", {"scheduler_names": ["volcano"]}),
        ("upsert_queue", {"metadata": {"name": "default"}, "spec": {"weight": 1}, "status": {"state": "Open"}}),
        *(("upsert_node", node(number)) for number in range(NODES)),
        *(("upsert_pod_group", group(number)) for number in range(len(pods) // 10)),
        *(("upsert_pod", one) for one in pods),
        ("moment", NOW),
    ]  # fmt: skip
    began = time.perf_counter()
    copy = SchedulerCopy.of(frames, "the snapshot")
    made = time.perf_counter() - began
    conditions = f"{NODES} nodes, {len(pods)} pods"
    if COPY in names:
        yield Figure(COPY, made, "s", f"{conditions}, without the way")
    began = time.perf_counter()
    for number in range(QUESTIONS):
        # all are refused, each of another node, so every question is put to the engine and taken back
        wrong, _ = copy.ask([pod_of(pods[number])], lambda *_: LANDS_BADLY)
        assert wrong == LANDS_BADLY, wrong
    each = (time.perf_counter() - began) / QUESTIONS
    if QUESTION in names:
        yield Figure(
            QUESTION,
            1000 * each,
            "ms",
            f"{conditions}, mean of {copy.questions}, with taking it back",
        )
