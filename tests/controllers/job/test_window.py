"""A number of replicas is one word: what is absurdly large costs what runs of it."""

import tracemalloc
from itertools import islice

import pytest

from hekla.api import batch
from hekla.api.sizes import ORDINARY, WAITING
from hekla.controllers.job.plugins import PluginError, plugins_of
from hekla.controllers.job.plugins.hosts import hosts, letters
from hekla.controllers.job.pods import template_of
from hekla.controllers.job.window import missing, placed
from tests.controllers.job.world import World, job_of, pod_of, task

MOST = 2**31 - 1


def made_of(world: World) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name in world.pods:
        _, of, index = name.split("-")
        found.setdefault(of, []).append(int(index))
    return found


@pytest.mark.parametrize("minimum", [1, MOST])
def test_a_job_of_two_thousand_million_costs_what_waits_and_runs(minimum: int) -> None:
    """The task's minimum is that which admission fills in, or one that was written."""
    tracemalloc.start()
    world = World(job_of(task("a", MOST, min_available=minimum), min_available=1))
    world.reconcile()  # the PodGroup
    world.reconcile()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert made_of(world)["a"] == list(range(WAITING + 1))
    assert world.job.status.pending == WAITING + 1 and peak < 20_000_000

    world.become("Running", *(f"train-a-{index}" for index in range(10)))
    world.reconcile()
    assert len(world.pods) == 10 + WAITING and world.phase == "Running"
    world.reconcile()
    assert len(world.pods) == 10 + WAITING, "as many wait as may"
    world.become("Succeeded", *(f"train-a-{index}" for index in range(10)))
    world.reconcile()
    assert world.phase == "Running" and world.job.status.succeeded == 10


def test_of_a_large_job_no_task_waits_for_anothers_pods() -> None:
    world = World(
        job_of(
            task("crowd", MOST, min_available=3), task("head", 2, min_available=2), min_available=5
        )
    )
    world.reconcile()
    world.reconcile()
    made = made_of(world)
    assert made["head"] == [0, 1] and made["crowd"] == list(range(3 + WAITING))
    del world.pods["train-head-1"], world.pods["train-crowd-1"]
    world.reconcile()
    assert {"train-head-1", "train-crowd-1"} <= world.pods.keys(), (
        "the minimum is made however many others wait"
    )


def test_what_a_small_task_leaves_is_for_the_others() -> None:
    tasks = [
        task("a", MOST, min_available=0),
        task("b", 10, min_available=0),
        task("c", MOST, min_available=0),
    ]
    found = missing(job_of(*tasks), tasks, {})
    counts = {name: sum(of.name == name for of, _ in found.create) for name in "abc"}
    assert counts == {"a": 495, "b": 10, "c": 495} and found.held == {
        "a": MOST - 495,
        "c": MOST - 495,
    }


def test_a_job_of_an_ordinary_size_gets_all_its_pods_at_once() -> None:
    one, other = task("a", ORDINARY - 5, min_available=1), task("b", 5)
    job = job_of(one, other, min_available=1)
    found = missing(job, job.spec.tasks, {"a": {1: pod_of(job, "a", 1)}})
    assert len(found.create) == ORDINARY - 1 and not found.held
    assert (
        found.create[0] == (one, 0)
        and found.create[1] == (one, 2)
        and found.create[-1] == (other, 4)
    )


def test_pods_that_wait_for_room_are_pending_for_the_phase() -> None:
    """Of 20,000 that are wanted 15,000 are needed together: with 14,000 left the job waits again,
    whatever has been made."""
    world = World(job_of(task("a", 20_000, min_available=15_000)))
    world.reconcile()
    world.reconcile()
    assert len(world.pods) == 15_000 + WAITING
    world.become("Running", *islice(world.pods, 15_000))
    world.reconcile()
    assert world.phase == "Running"
    for name in list(islice(world.pods, 1_000)):
        del world.pods[name]
    world.reconcile()
    assert world.phase == "Pending"


@pytest.mark.parametrize(("bound", "said"), [(100_000, "100000"), (0, "1000000")])
def test_a_minimum_beyond_the_bound_is_not_begun(bound: int, said: str) -> None:
    """Nor is one that no cluster could hold, where no bound is set."""
    world = World(job_of(task("a", MOST)))
    world.most_pods = bound
    world.reconcile()
    world.reconcile()
    assert not world.pods and world.phase == "Pending"
    assert any(
        "spec.minAvailable: 2147483647 pods" in event and f"at most {said} are" in event
        for event in world.events
    )


def test_whose_place_a_pod_has() -> None:
    job = job_of(task("a", 2), task("a-1", MOST))
    pods = {
        name: pod_of(job, "a", 0)
        for name in (
            "train-a-0",
            "train-a-2",
            "train-a-01",
            "train-a-1-7",
            "train-b-0",
            "x",
            "train-a-",
        )
    }
    places, beyond = placed(job, pods)
    assert {name: list(there) for name, there in places.items()} == {"a": [0], "a-1": [7]} and len(
        beyond
    ) == 5


@pytest.mark.parametrize("plugin", ["svc", "ssh", "mpi", "tensorflow"])
def test_a_list_of_all_hosts_is_refused_before_it_is_made(plugin: str) -> None:
    """svc and ssh write one beside the pods, mpi and tensorflow into them."""
    job = job_of(task("master"), task("worker", MOST), plugins={plugin: []})
    tracemalloc.start()
    with pytest.raises(
        PluginError, match=r"would have \d+ bytes for \d+ pods; an object holds 1048576"
    ):
        for one in plugins_of(job):
            template_of(job, job.spec.tasks[0], [one])
            for dependent in one.dependents(job):
                dependent.make()
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()


def test_the_length_of_a_list_is_worked_out() -> None:
    for replicas in (0, 1, 9, 10, 11, 12_345):
        one = task("a", replicas)
        assert letters(one, len("j-a-.j") + 1) == sum(len(host) + 1 for host in hosts("j", one))


def test_variables_for_each_of_very_many_tasks_are_refused() -> None:
    job = batch.Job(
        spec=batch.JobSpec(tasks=[task(f"t{index}") for index in range(1001)], plugins={"svc": []})
    )
    with pytest.raises(PluginError, match="variables for 1001 tasks"):
        template_of(job, job.spec.tasks[0], plugins_of(job))
