"""What jobs add to their queues: the same whether it is worked out for each or once for all that
are alike."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.framework.heap import Heap, Line
from hekla.engine.model.queues.sums import contribution
from hekla.engine.model.resources import add, exceeding, exceeds
from hekla.engine.world import World, policy


def check(world: World) -> None:
    state = world.state
    state.count_changes()
    sums = {
        name: {"request": {}, "allocated": {}, "inqueue": {}, "elastic": {}}
        for name in state.queues
    }
    reserved: dict[str, float] = {}
    for job in state.jobs.values():
        if job.contribution is None:
            continue
        assert job.contribution == contribution(job), job
        add(reserved, job.contribution.reserved)
        for kind, total in sums[job.queue].items():
            add(total, getattr(job.contribution, kind))
    assert positive(state.job_table.reserved) == positive(reserved)
    for name, kinds in sums.items():
        queue = state.queues[name]
        assert queue.jobs == sum(
            job.contribution is not None and job.queue == name for job in state.jobs.values()
        )
        for kind, total in kinds.items():
            assert positive(getattr(queue, kind)) == positive(total), (name, kind)


def positive(of: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in of.items() if value}


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10**9), length=st.integers(3, 25))
def test_sums_are_what_all_jobs_add(seed: int, length: int) -> None:
    draw = random.Random(seed)
    world = World(policy(), default_queue=False)
    world.nodes("n1", "n2", cpu=12)
    for name in ("left", "right"):
        world.queue(name)
    for number in range(length):
        kind = draw.randrange(6)
        if kind < 3:
            for at in range(draw.choice([1, 6])):
                world.job(
                    f"job{number}-{at}",
                    pods=draw.choice([0, 1, 1, 1, 2]),
                    min_available=draw.choice([0, 1, 2]),
                    cpu=draw.choice([1, 1, 2]),
                    queue=draw.choice(["left", "right"]),
                    phase=draw.choice(["Pending", "Inqueue", "Running"]),
                    min_resources=draw.choice([None, {"cpu": 1}, {"cpu": 2, "nvidia.com/gpu": 1}]),
                    on=draw.choice([[], [], ["n1"]]),
                    spec=draw.choice([{}, {}, {}, {"schedulingGates": [{"name": "later"}]}]),
                )
        elif kind == 3:
            name = draw.choice(["left", "right"])
            world.state.remove_queue(name)
            if draw.random() < 0.5:
                world.state.count_changes()
            world.queue(name)
        elif kind == 4:
            for key in [key for key in world.pods if draw.random() < 0.2]:
                del world.pods[key]
                world.state.remove_pod(key)
        else:
            world.run()
            world.settle()
        if draw.random() < 0.5:
            check(world)
    check(world)


def test_a_queue_made_anew_between_two_cycles_counts_what_its_jobs_hold() -> None:
    world = World(policy())
    world.nodes("n1", cpu=8)
    world.job("runs", cpu=1, on=["n1"], phase="Running")
    world.run()
    world.state.remove_queue("default")
    world.queue("default")
    check(world)
    assert world.state.queues["default"].allocated["cpu"] == 1000


@given(
    st.dictionaries(
        st.sampled_from(["cpu", "memory", "pods", "a/b"]), st.integers(0, 5).map(float)
    ),
    st.dictionaries(
        st.sampled_from(["cpu", "memory", "pods", "a/b"]), st.integers(0, 5).map(float)
    ),
    st.dictionaries(
        st.sampled_from(["cpu", "memory", "pods", "a/b"]), st.integers(0, 5).map(float)
    ),
)
def test_whether_something_is_exceeded_is_whether_there_is_a_list_of_it(
    most: dict[str, float], asked: dict[str, float], held: dict[str, float]
) -> None:
    wanted = dict(held)
    add(wanted, asked)
    assert exceeds(most, asked, held) is bool(exceeding(wanted, most, asked))


@given(st.lists(st.integers(0, 5)), st.lists(st.one_of(st.none(), st.integers(0, 5))))
def test_a_line_serves_in_the_order_of_a_heap(first: list[int], then: list[int | None]) -> None:
    heap, line = (
        kind(lambda item: item[0], [(key, number) for number, key in enumerate(first)])
        for kind in (Heap, Line)
    )
    for number, key in enumerate(then):
        if key is not None:
            heap.push((key, -number))
            line.push((key, -number))
        elif heap:
            assert heap.pop() == line.pop()
    assert len(heap) == len(line)
    assert sorted(heap) == sorted(line)
    assert [heap.pop() for _ in range(len(heap))] == [line.pop() for _ in range(len(line))]
