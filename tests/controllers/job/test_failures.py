"""Which failure of a job is kept, and that keeping it holds nobody up."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from hekla.api import batch, names
from hekla.controllers.job import failures
from hekla.controllers.job.failures import LENGTH, Failures, LastFailure, news, tail
from hekla.controllers.records import Pod
from hekla.kube.errors import NotFound

JOB = msgspec.convert(
    {"metadata": {"name": "train", "namespace": "default", "uid": "j"}}, batch.Job
)
OWNER = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "name": "train",
    "uid": "j",
    "controller": True,
}


def pod(
    name: str, at: str = "10:00:00", *, code: int = 1, run: int = 0, uid: str = "", **status: Any
) -> Pod:
    end = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": f"2026-01-01T{at}Z"}}
    tree = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or name,
            "annotations": {
                names.TASK_SPEC: "a",
                names.JOB_NAME: "train",
                names.JOB_VERSION: str(run),
            },
            "ownerReferences": [OWNER],
        },
        "status": {
            "phase": "Failed",
            "containerStatuses": [{"name": "main", "state": end}],
            **status,
        },
    }
    return msgspec.convert(tree, Pod)


def showing(kept: LastFailure) -> batch.Job:
    text = msgspec.json.encode(kept).decode()
    return msgspec.structs.replace(
        JOB, metadata=msgspec.structs.replace(JOB.metadata, annotations={names.LAST_FAILURE: text})
    )


def newest(job: batch.Job, *pods: Pod) -> str:
    found = news(job, pods)
    return found[1].pod if found else ""


def test_of_pods_that_fail_together_the_first_is_the_cause() -> None:
    assert newest(JOB, pod("b", "10:00:02"), pod("a", "10:00:01"), pod("c", "10:00:03")) == "a"


def test_what_follows_at_once_does_not_replace_the_cause() -> None:
    shown = showing(failures.described(pod("a", "10:00:00")))
    assert newest(shown, pod("b", "10:00:04")) == ""
    assert newest(shown, pod("b", "10:00:09")) == "b"


def test_a_later_run_replaces_an_earlier_one() -> None:
    shown = showing(failures.described(pod("a", "10:00:00", run=1)))
    assert newest(shown, pod("a", "10:00:01", run=2, uid="again")) == "a"
    assert newest(shown, pod("z", "11:00:00", run=0)) == ""


def test_a_failure_that_is_shown_is_no_news() -> None:
    assert newest(showing(failures.described(pod("a"))), pod("a")) == ""


def test_an_annotation_of_somebody_elses_making_is_replaced() -> None:
    broken = msgspec.structs.replace(
        JOB, metadata=msgspec.structs.replace(JOB.metadata, annotations={names.LAST_FAILURE: "{"})
    )
    assert newest(broken, pod("a")) == "a"


def test_an_evicted_pod_has_a_reason_and_no_container() -> None:
    evicted = pod(
        "a", containerStatuses=[], reason="Evicted", message="The node was low on resource: memory."
    )
    kept = failures.described(evicted)
    assert (kept.container, kept.exit_code, kept.reason) == ("", None, "Evicted")
    assert kept.message == "The node was low on resource: memory."


def test_a_container_that_was_started_again_failed_before() -> None:
    end = {"terminated": {"exitCode": 7, "reason": "Error", "finishedAt": "2026-01-01T10:00:00Z"}}
    status = {"name": "main", "restartCount": 1, "state": {}, "lastState": end}
    kept = failures.described(pod("a", phase="Running", containerStatuses=[status]))
    assert (kept.container, kept.exit_code, kept.restarts) == ("main", 7, 1)


def test_a_log_is_cut_before_a_line() -> None:
    lines = [f"{number:04d} " + "x" * 95 for number in range(100)]
    cut = tail("\n".join(lines) + "\n")
    assert (
        len(cut) <= LENGTH
        and cut.splitlines() == lines[-len(cut.splitlines()) :]
        and cut.endswith(lines[-1])
    )
    assert tail("short\n") == "short"
    assert tail("y" * 5000) == "y" * LENGTH


class Server:
    """Answers for logs as it is told, and notes what was asked."""

    def __init__(self, text: str | None = "", hangs: bool = False) -> None:
        self.text, self.hangs = text, hangs
        self.queries: list[dict[str, str]] = []

    async def request(self, method: str, path: str, query: dict[str, str], timeout: float) -> Any:
        self.queries.append(query)
        if self.hangs:
            await asyncio.sleep(3600)
        if self.text is None:
            raise NotFound(404, "NotFound", "pods a not found")
        return type("Answer", (), {"body": self.text.encode()})


class Story:
    def __init__(self, server: Server) -> None:
        self.written: list[dict[str, Any]] = []
        self.again: list[str] = []
        self.failures = Failures(server, self.write, self.again.append)  # type: ignore[arg-type]

    async def write(self, key: str, uid: str, text: str) -> None:
        self.written.append(msgspec.json.decode(text))

    async def rest(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


async def test_the_last_lines_are_kept_and_the_pod_waits_for_them() -> None:
    server = Server("loading\nTraceback\n")
    story = Story(server)
    failed = pod("a", code=3)
    story.failures.observe(None, failed)
    story.failures.record_new("default/train", JOB)
    assert story.failures.holds("default/train", [failed]) is not None
    assert story.failures.holds("default/train", [pod("b")]) is None, "others need not wait"
    await story.rest()
    assert story.failures.holds("default/train", [failed]) is None
    how = {"container": "main", "exitCode": 3, "reason": "Error", "log": "loading\nTraceback"}
    assert story.written == [{"pod": "a", "uid": "a", "time": "2026-01-01T10:00:00Z", **how}]
    assert server.queries == [{"container": "main", "tailLines": "20", "limitBytes": "65536"}]


async def test_without_a_log_the_rest_is_kept() -> None:
    story = Story(Server(None))
    story.failures.observe(None, pod("a"))
    story.failures.record_new("default/train", JOB)
    await story.rest()
    assert [kept.get("log") for kept in story.written] == [None]


async def test_a_node_that_does_not_answer_holds_a_deletion_for_a_second_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(Server(hangs=True))
    failed = pod("a")
    story.failures.observe(None, failed)
    story.failures.record_new("default/train", JOB)
    await story.rest()
    assert story.failures.holds("default/train", [failed]) is not None
    monkeypatch.setattr(failures, "HELD", -1.0)  # as if the second were over
    assert story.failures.holds("default/train", [failed]) is None


async def test_what_failed_meanwhile_is_looked_at_next() -> None:
    story = Story(Server("x"))
    story.failures.observe(None, pod("a"))
    story.failures.record_new("default/train", JOB)
    story.failures.observe(None, pod("b", "10:01:00"))
    story.failures.record_new("default/train", JOB)
    await story.rest()
    assert [kept["pod"] for kept in story.written] == ["a"] and story.again == ["default/train"]
    story.failures.record_new("default/train", JOB)
    await story.rest()
    assert [kept["pod"] for kept in story.written] == ["a", "b"]


async def test_pods_that_do_well_or_are_stopped_cost_nothing() -> None:
    server = Server("x")
    story = Story(server)
    story.failures.observe(None, pod("a", phase="Running", containerStatuses=[]))
    stopped = pod("b")
    stopped.metadata.deletion_timestamp = "2026-01-01T10:00:00Z"
    story.failures.observe(None, stopped)
    story.failures.record_new("default/train", JOB)
    await story.rest()
    assert not server.queries and not story.written
