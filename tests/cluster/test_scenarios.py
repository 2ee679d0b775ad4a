"""`kubectl apply -f` of the scenarios: each behaves as its first comment says.

Without --kubeconfig they are told on a cluster of their own that is one node of 3 cpus, because
shares are shares of all nodes, cordoned ones too.  Long sleeps are shortened where the story waits
for their end; what still runs is deleted.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import objects
from tests.cluster.api import Api, Tree, eventually, steadily
from tests.cluster.conftest import (
    Kubectl,
    Namespace,
    cluster_of_our_own,
    find_kubectl,
    find_real_node,
)

SCENARIOS = Path(__file__).parents[2].parent / "shared" / "scenarios"
JOBS, GROUPS = "batch.volcano.sh/v1alpha1/jobs", "scheduling.volcano.sh/v1beta1/podgroups"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"

pytestmark = pytest.mark.skipif(
    not SCENARIOS.is_dir(), reason="the scenarios are not beside this repository"
)


@pytest.fixture(scope="session")
def kubeconfig(request: pytest.FixtureRequest) -> Iterator[Path]:
    given = request.config.getoption("--kubeconfig", None)
    if given:
        yield Path(given)
        return
    with cluster_of_our_own(nodes=1, node_cpu="3") as made:
        yield made


@pytest.fixture(scope="session")
def api(kubeconfig: Path) -> Api:
    found = Api(kubeconfig)
    if found.get(QUEUES).status == 404:
        pytest.skip("this cluster has no batch jobs")
    return found


@pytest.fixture(scope="session")
def kubectl(kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return find_kubectl(kubeconfig, tmp_path_factory.mktemp("kubectl-cache"))


@pytest.fixture(scope="session")
def real_node(api: Api) -> str:
    return find_real_node(api)


def cpus(api: Api) -> float:
    """Of all nodes together."""
    texts = [
        node["status"]["allocatable"]["cpu"] for node in api.get("/api/v1/nodes").tree["items"]
    ]
    return sum(
        float(text.removesuffix("m")) / (1000 if text.endswith("m") else 1) for text in texts
    )


@pytest.fixture
def room(api: Api) -> Iterator[Callable[..., str]]:
    """Makes a node on which pods only pretend to run, of a stated size."""
    made: list[str] = []

    def make(**size: str) -> str:
        name = f"room-{uuid.uuid4().hex[:6]}"
        named = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in size.items()}
        size = {"cpu": "64", "memory": "64Gi", "pods": "110", **named}
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        metadata = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
        api.create(
            "/api/v1/nodes",
            {"metadata": metadata, "status": {"capacity": size, "allocatable": size}},
        )
        api.wait(
            f"/api/v1/nodes/{name}",
            lambda node: objects.condition(node, "Ready").get("status") == "True",
        )
        made.append(name)
        return name

    yield make
    for name in made:
        api.delete(f"/api/v1/nodes/{name}")


class Story:
    def __init__(self, api: Api, kubectl: Kubectl, ns: Namespace) -> None:
        self.api, self.kubectl, self.ns = api, kubectl, ns
        self.applied: list[str] = []

    def apply(self, file: str, change: Callable[[str], str] = lambda text: text) -> str:
        text = change((SCENARIOS / file).read_text())
        self.applied.append(text)
        return self.kubectl("-n", self.ns.name, "apply", "-f", "-", stdin=text)

    def undo(self) -> None:
        self.api.delete(self.ns.path(JOBS))
        for text in reversed(self.applied):
            self.kubectl.run(
                "-n",
                self.ns.name,
                "delete",
                "--ignore-not-found",
                "--wait=false",
                "-f",
                "-",
                stdin=text,
            )
            eventually(lambda: not self.api.get(self.ns.path(JOBS)).names)
            self.api.delete(self.ns.path("pods"), gracePeriodSeconds=0)
        self.applied.clear()

    def pods(self, phase: str = "") -> list[Tree]:
        return [
            pod
            for pod in self.api.get(self.ns.path("pods")).tree["items"]
            if not phase or pod["status"]["phase"] == phase
        ]

    def phase_reaches(self, job: str, phase: str) -> Tree:
        return self.api.wait(
            self.ns.path(JOBS, job),
            lambda tree: tree.get("status", {}).get("state", {}).get("phase") == phase,
        )

    def group(self, job: str) -> Tree:
        return next(
            (
                group
                for group in self.api.get(self.ns.path(GROUPS)).tree["items"]
                if group["metadata"]["name"].startswith(job)
            ),
            {},
        )


@pytest.fixture
def story(api: Api, kubectl: Kubectl, new_ns: Any) -> Iterator[Story]:
    told = Story(api, kubectl, new_ns())
    yield told
    told.undo()


def test_01_hello(story: Story, real_node: str) -> None:
    # fake pods have no logs
    there = (
        f"          nodeSelector: {{kubernetes.io/hostname: {real_node}}}\n          containers:"
    )
    wait = f"until [ -e /tmp/{story.ns} ]; do sleep 0.1; done"
    story.apply(
        "01-hello-job.yaml",
        lambda text: text.replace("sleep 300", wait).replace("          containers:", there),
    )
    story.phase_reaches("hello-volcano-job", "Running")
    story.kubectl(
        "-n", story.ns.name, "exec", "hello-volcano-job-mytask-0", "--", "touch", f"/tmp/{story.ns}"
    )
    story.phase_reaches("hello-volcano-job", "Completed")
    assert (
        story.kubectl("-n", story.ns.name, "logs", "hello-volcano-job-mytask-0")
        == "Hello Volcano!\n"
    )


def test_02_two_queues_share_one_to_two(story: Story, api: Api) -> None:
    if cpus(api) != 3:
        pytest.skip(
            f"six jobs of half a cpu share 1:2 where there are 3 cpus; this cluster has {cpus(api):g}"
        )
    story.apply("02-weighted-queues.yaml")
    eventually(
        lambda: all(
            api.get(f"/apis/scheduling.volcano.sh/v1beta1/queues/{name}")
            .tree.get("status", {})
            .get("state")
            == "Open"
            for name in ("queue-a", "queue-b")
        )
    )
    # Queue-a comes first and may fill the node; queue-b gets its share back.
    story.apply("02-weighted-queues-jobs.yaml")

    def shares() -> Counter[str]:
        return Counter(pod["metadata"]["name"].split("-")[1] for pod in story.pods("Running"))

    eventually(lambda: shares() == {"a": 2, "b": 4})
    steadily(lambda: shares() == {"a": 2, "b": 4}, 1)


def test_03_a_gang_that_does_not_fit(story: Story, room: Callable[..., str]) -> None:
    if cpus(story.api) > 60:
        pytest.skip("a gang of 80 cpus is too big for a smaller cluster than this one")
    room(cpu="20")
    story.apply("02-weighted-queues.yaml")
    story.apply("03-gang-too-big.yaml")
    group = eventually(
        lambda: (
            (found := story.group("job-gang"))
            and found.get("status", {}).get("conditions")
            and found
        )
    )
    assert group["status"]["phase"] in ("Pending", "Inqueue")
    reason = " ".join(condition.get("message", "") for condition in group["status"]["conditions"])
    assert "cpu" in reason or "resource" in reason, reason
    steadily(lambda: not story.pods("Running"), 2)
    story.undo()
    story.apply("02-weighted-queues.yaml")
    story.apply(
        "03-gang-too-big.yaml", lambda text: text.replace("minAvailable: 20", "minAvailable: 4")
    )
    eventually(lambda: len(story.pods("Running")) >= 4)
    assert len(story.pods("Running")) <= 5


def test_04_a_task_after_another(story: Story, real_node: str) -> None:
    story.apply(
        "04-task-dependency.yaml",
        lambda text: text.replace("sleep 100", "sleep 2").replace("sleep 20", "sleep 1"),
    )
    names = ("workflow-job-task-a-0", "workflow-job-task-b-0")
    seen: list[tuple[str, bool]] = []
    made: dict[str, str] = {}

    def finished() -> bool:
        pods = {pod["metadata"]["name"]: pod for pod in story.pods()}
        phases = {name: pod["status"]["phase"] for name, pod in pods.items()}
        seen.append((phases.get(names[0], ""), names[1] in phases))
        made.update((name, pod["metadata"]["creationTimestamp"]) for name, pod in pods.items())
        return phases.get(names[1]) == "Succeeded"

    eventually(finished)
    assert not any(exists for phase, exists in seen if phase != "Running" and phase != "Succeeded")
    assert made[names[1]] >= made[names[0]]
    story.phase_reaches("workflow-job", "Completed")


def test_05_topology_is_stored_and_checked(story: Story) -> None:
    told = story.apply("05-topology-hypernodes.yaml")
    assert told.count(" created") == len(told.splitlines()) >= 7
    nodes = story.api.get("/apis/topology.volcano.sh/v1alpha1/hypernodes").names
    assert {"s0-s1-rack-1"} <= set(nodes)
    assert " created" in story.apply("05-topology-job.yaml")
    bad = {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": "bad"},
        "spec": {"tier": "one"},
    }
    assert story.api.post("/apis/topology.volcano.sh/v1alpha1/hypernodes", bad).status == 422


@pytest.fixture
def second_queue(api: Api) -> Iterator[str]:
    """A queue with the weight of `default`."""
    name = f"second-{uuid.uuid4().hex[:6]}"
    api.create(
        QUEUES,
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"weight": 1},
        },
    )
    api.wait(f"{QUEUES}/{name}", lambda queue: queue.get("status", {}).get("state") == "Open")
    yield name
    eventually(lambda: api.delete(f"{QUEUES}/{name}").status == 200)  # once nothing of it is left


def test_07_elastic(story: Story, room: Callable[..., str], second_queue: str) -> None:
    def running(job: str) -> int:
        return sum(
            pod["metadata"]["labels"]["volcano.sh/job-name"] == job for pod in story.pods("Running")
        )

    room(gpu="5")
    story.apply("07-elastic-job.yaml")
    eventually(lambda: running("elastic-job") == 5)
    story.phase_reaches("elastic-job", "Running")
    room(gpu="5")
    eventually(lambda: running("elastic-job") == 10)

    # Another queue wants its half: the extra pods go, and no more than those.
    other = yaml.safe_load((SCENARIOS / "07-elastic-job.yaml").read_text())
    other["metadata"]["name"], other["spec"]["queue"], other["spec"]["tasks"][0]["replicas"] = (
        "other-job",
        second_queue,
        5,
    )
    story.api.create(story.ns.path(JOBS), other)
    fewest = 10

    def shared() -> bool:
        nonlocal fewest
        fewest = min(fewest, running("elastic-job"))
        return running("other-job") == 5

    eventually(shared)
    steadily(lambda: (running("elastic-job"), running("other-job")) == (5, 5), 1)
    assert fewest >= 5
    story.phase_reaches("elastic-job", "Running")

    story.api.delete(story.ns.path(JOBS, "other-job"))
    eventually(lambda: running("elastic-job") == 10)
