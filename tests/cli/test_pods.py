"""What commands about pods print and ask.  Reference: cli 9.4."""

from __future__ import annotations

import pytest

from tests.cli.answers import (
    THREE_DAYS_AGO,
    Answers,
    Tree,
    printed,
    vcctl,
)

PODS = "/api/v1/namespaces/default/pods"


def pod(
    name: str,
    namespace: str = "default",
    labels: Tree | None = None,
    annotations: Tree | None = None,
) -> Tree:
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": labels or {},
        "annotations": annotations or {},
        "creationTimestamp": THREE_DAYS_AGO,
    }
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    }


POD_TABLE = """\
Name          Ready      Status         Restart  Age       
my-pod        0/1        Running        0        3d        
"""  # noqa: W291 (columns are padded)


@pytest.mark.scenario("cli", 16)
@pytest.mark.parametrize("flags", [(), ("-n", "default"), ("-j", "my-job1")])
def test_pods_are_listed(server: Answers, flags: tuple[str, ...]):
    server.gives[PODS] = [pod("my-pod")]

    assert printed(vcctl(server, "pod", "list", *flags)) == POD_TABLE


@pytest.mark.scenario("cli", 17)
def test_pods_of_a_queue_are_found_by_label_and_annotation(server: Answers):
    label = {"volcano.sh/queue-name": "my-queue1"}
    server.gives[PODS] = [
        pod("pod1", labels=label),
        pod("pod2", labels={**label, "volcano.sh/job-name": "my-job1"}),
        pod("pod3", annotations={"scheduling.volcano.sh/queue-name": "my-queue1"}),
        pod("pod4"),
    ]

    lines = printed(vcctl(server, "pod", "list", "-q", "my-queue1")).splitlines()

    assert [line.split()[0] for line in lines] == ["Name", "pod1", "pod2", "pod3"]


@pytest.mark.scenario("cli", 18)
def test_the_job_and_the_queue_of_pods_must_agree(server: Answers):
    server.gives[PODS] = [pod("pod1", labels={"volcano.sh/queue-name": "my-queue1"})]

    assert (
        len(printed(vcctl(server, "pod", "list", "-j", "my-job1", "-q", "my-queue1")).splitlines())
        == 2
    )
    other = vcctl(server, "pod", "list", "-j", "my-job1", "-q", "my-queue2")
    assert (
        other.stdout
        == "Failed to list pod: the input vcjob my-job1 does not match the queue my-queue2\n"
    )
    assert other.returncode == 255


@pytest.mark.scenario("cli", 19)
def test_pods_of_all_namespaces_are_sorted(server: Answers):
    server.gives["/api/v1/pods"] = [pod("worker-0", "team-b"), pod("worker-0", "team-a")]

    lines = printed(vcctl(server, "pod", "list", "--all-namespaces")).splitlines()

    assert [line.split()[0] for line in lines] == ["Namespace", "team-a", "team-b"]
