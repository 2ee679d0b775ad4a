"""party-limits: whoever has as much as he may waits, and is told whose limit it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.policy import PolicyError
from hekla.engine.model.tasks import HOLDS, Job, Status, Task
from hekla.engine.world import World, policy


def world(actions: str = "enqueue, allocate, backfill", nodes: int = 4, **limits: Any) -> World:
    plugins = ["gang", "predicates", {"name": "party-limits", "arguments": limits}]
    here = World(policy(plugins=plugins, actions=actions))
    here.nodes(*(f"n{number}" for number in range(nodes)), cpu=8, gpu=8)
    return here


def mine(here: World, name: str, user: str = "anna", cpu: int = 1, **more: Any) -> None:
    marks = {"hekla.io/user": user, **more.pop("marks", {})}
    here.job(name, annotations=marks, cpu=cpu, **more)


def running(here: World, *names: str) -> list[str]:
    jobs = here.state.jobs
    return [name for name in names if held(jobs[f"default/{name}"])]


def held(job: Job) -> list[Task]:
    return [task for task in job.tasks.values() if task.status in (*HOLDS, Status.ALLOCATED)]


def test_a_user_runs_so_many_jobs_at_once() -> None:
    here = world(running=2)
    for name in ("a", "b", "c"):
        mine(here, name)
    mine(here, "d", user="ben")
    here.run()
    here.settle()
    assert running(here, "a", "b", "c", "d") == ["a", "b", "d"]
    decided = here.run()
    assert decided.explanations["default/c"].text.startswith(
        "c cannot start: user anna runs 2 of 2 jobs."
    )
    here.end("a")
    here.run()
    assert running(here, "c") == ["c"]


def test_all_of_a_gang_starts_though_it_fills_the_limit() -> None:
    here = world(running=1)
    mine(here, "gang", pods=3)
    mine(here, "next")
    here.run()
    assert len(held(here.state.jobs["default/gang"])) == 3
    assert running(here, "gang", "next") == ["gang"]


def test_a_gang_that_finds_no_room_takes_nobodys_place() -> None:
    here = world(running=1)
    mine(here, "large", pods=9, cpu=8)
    mine(here, "small", cpu=1)
    here.run()
    assert running(here, "large", "small") == ["small"]


def test_amounts_and_what_is_stated_for_one() -> None:
    here = world(resources={"nvidia.com/gpu": 4}, of={"ben": {"resources": {"nvidia.com/gpu": 8}}})
    mine(here, "a", gpu=3, min_resources={"nvidia.com/gpu": 3})
    mine(here, "b", gpu=2, min_resources={"nvidia.com/gpu": 2})
    mine(here, "c", user="ben", gpu=3)
    mine(here, "d", user="ben", gpu=3)
    here.run()
    here.settle()
    assert running(here, "a", "b", "c", "d") == ["a", "c", "d"]
    said = here.run().explanations["default/b"].text
    assert "user anna holds 3 of 4 nvidia.com/gpu, and the job's minimum takes 2" in said


def test_beyond_what_may_be_submitted_no_pods_are_made() -> None:
    here = world(submitted=2)
    for name in ("a", "b", "c"):
        mine(here, name, pods=0, min_available=1, phase="Pending", min_resources={"cpu": 1})
    decided = here.run()
    let_in = {one.key for one in decided.pod_groups if one.phase == "Inqueue"}
    assert let_in == {"default/a", "default/b"}
    assert "user anna has 2 of 2 jobs submitted" in decided.explanations["default/c"].text


def test_an_account_counts_what_is_below_it() -> None:
    here = world(by="account", of={"vision": {"running": 2}})
    for name, user in (("a", "anna"), ("b", "ben"), ("c", "cleo")):
        mine(here, name, user=user, marks={"hekla.io/account": "vision/lab"})
    mine(here, "d", user="dora", marks={"hekla.io/account": "audio"})
    here.run()
    here.settle()
    assert running(here, "a", "b", "c", "d") == ["a", "b", "d"]
    assert "account vision runs 2 of 2 jobs" in here.run().explanations["default/c"].text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"by": "team"}, "by = 'team': one of user, namespace, account"),
        ({"running": -1}, "running = -1: a whole number from 0 up"),
        ({"resources": {"cpu": "x"}}, "resources.cpu = 'x'"),
        ({"of": {"anna": {"runing": 1}}}, "runing"),
        ({"of": {"anna": {"submitted": -2}}}, "of.anna.submitted = -2"),
    ],
)
def test_what_makes_no_sense(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError) as error:
        world(**arguments)
    assert said in str(error.value)


JOBS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(1, 4), st.booleans()),
    min_size=1,
    max_size=14,
)
"""User, pods, GPUs of each, and whether all pods have to start together."""


@settings(deadline=None, max_examples=40)
@given(JOBS, st.integers(1, 3), st.integers(2, 9), st.sampled_from(["", "easy", "conservative"]))
def test_no_schedule_exceeds_a_limit(
    jobs: list[tuple[str, int, int, bool]], most: int, gpus: int, mode: str
) -> None:
    limits = {"running": most, "resources": {"nvidia.com/gpu": gpus}}
    plugins = ["gang", "predicates", {"name": "party-limits", "arguments": limits}]
    here = World(
        policy(
            plugins=plugins,
            actions="enqueue, allocate, backfill",
            configurations=[{"name": "backfill", "arguments": {"mode": mode}}],
        )
    )
    here.nodes("n0", "n1", cpu=32, gpu=8)
    waiting = []
    for number, (user, pods, each, gang) in enumerate(jobs):
        name = f"{user}-{number}"
        mine(here, name, user=user, pods=pods, min_available=pods if gang else 1, gpu=each)
        waiting.append((name, user))
    started: list[str] = []
    for _ in range(3 * len(jobs)):
        here.run()
        here.settle()
        now = [(name, user) for name, user in waiting if running(here, name)]
        counted = Counter(user for _, user in now)
        assert all(count <= most for count in counted.values())
        for user in counted:
            cards = sum(
                task.request.amounts.get("nvidia.com/gpu", 0.0) / 1000
                for name, whose in now
                if whose == user
                for task in held(here.state.jobs[f"default/{name}"])
            )
            assert cards <= gpus
        started += [name for name, _ in now if name not in started]
        if not now:
            break
        here.end(now[0][0])
        waiting.remove(now[0])
    possible = [
        f"{user}-{number}"
        for number, (user, pods, each, gang) in enumerate(jobs)
        if (pods if gang else 1) * each <= gpus
    ]
    assert set(possible) <= set(started)


def test_asking_what_a_user_may_still_have_changes_nothing() -> None:
    """In the middle of a cycle, in which a job has been placed and a pod's eviction taken back."""
    here = world(running=2, resources={"cpu": 8})
    mine(here, "runs", cpu=3, on=["n0"], phase="Running")
    mine(here, "placed", cpu=2)
    mine(here, "waits", cpu=1)
    session = open_session(here.state, hooks_of(here.state, here.policy), here.now)
    runs, placed, waits = (here.state.jobs[f"default/{name}"] for name in ("runs", "placed", "waits"))  # fmt: skip

    evicting = session.statement()
    evicting.evict(next(iter(runs.tasks.values())), "preempt")
    evicting.discard()
    session.statement().allocate(next(iter(placed.tasks.values())), 0)

    held = {"cpu": 5000.0}, {"cpu": 8000.0}
    for _ in range(2):
        amounts, jobs = session.votes.party_ceilings(waits)
        assert (amounts.held, amounts.most) == held and jobs.jobs == 0
    said = session.votes.job_valid(waits)
    assert said is not None and said.message == "user anna runs 2 of 2 jobs"
