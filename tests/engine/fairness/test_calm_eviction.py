"""Calm eviction: who is left in peace, who leaves first, how many leave at once, and how they are
told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from hekla.api.text.times import stamp
from hekla.engine.framework.policy import Policy, PolicyError
from hekla.engine.model.decisions import Decisions, EvictionNotice
from hekla.engine.model.evictions.notices import EVICT_AT, EVICT_FOR
from hekla.engine.policies import read_policy
from hekla.engine.tape import encoded
from hekla.engine.world import World, policy
from tests.engine.fairness.settling import BOTH, LAYOUTS, drawn, more_jobs, settled, turn
from tests.engine.fairness.stage import evicted
from tests.engine.fairness.test_settling import Greedy

CALM = "calm-eviction"
PREEMPT = "enqueue, allocate, preempt"
USUAL = ["priority", "gang", "conformance"]


def calm(actions: str = PREEMPT, **arguments: Any) -> Policy:
    return policy(
        tiers=[USUAL, ["predicates", "capacity", {"name": CALM, "arguments": arguments}]],
        actions=actions,
    )


def cluster(rules: Policy, cpu: int = 4) -> World:
    """One node, and three levels of priority."""
    world = World(rules)
    world.tells_starts = True
    world.nodes("n1", cpu=cpu)
    for level, value in (("low", 1), ("mid", 50), ("high", 100)):
        world.priority_class(level, value)
    return world


def runs(world: World, name: str, *, pods: int = 1, **given: Any) -> None:
    """A job of low priority that begins to run now."""
    given = {"priority": "low", "min_available": 0, "cpu": 1, **given}
    world.job(name, pods=pods, **given)
    world.run("enqueue, allocate")
    world.settle()


def claims(world: World, name: str = "urgent", *, pods: int = 1, **given: Any) -> None:
    given = {"priority": "high", "min_available": pods, "cpu": 1, **given}
    world.job(name, pods=pods, **given)


def after(world: World, seconds: float) -> Decisions:
    """So many seconds later, a cycle, which comes true."""
    world.now += seconds
    decisions = world.run()
    assert decisions.problems == []
    world.settle()
    return decisions


def notices(decisions: Decisions) -> list[EvictionNotice]:
    return list(decisions.notices or ())


# ------------------------------------------------------------------------------------ minimum runtime


def test_a_pod_runs_for_its_minimum_before_it_may_be_evicted() -> None:
    world = cluster(calm(minRuntime="10m"))
    runs(world, "train", pods=4)
    began = world.now
    claims(world)
    assert evicted(after(world, 599)) == []
    assert world.why("urgent").endswith(
        "No victim because 4 pods such as default/train-task-0 may not be evicted now: the minimum "
        f"runtime that the policy states ends at {stamp(began + 600)} (calm-eviction)."
    )
    assert len(evicted(after(world, 1))) == 1


@pytest.mark.parametrize(
    ("stated", "seconds"),
    [
        ({}, 60),
        ({"queue": "5m"}, 300),
        ({"queue": "5m", "class": "2m"}, 120),
        ({"queue": "5m", "class": "2m", "job": "20m"}, 1200),
        ({"queue": "5m", "job": "0s"}, 0),
        ({"queue": "5m", "class": "soon"}, 300),
        ({"job": "100h"}, 3600),
        ({"job": "20m", "pod": "3m"}, 180),
    ],
)
def test_the_nearest_word_wins(stated: dict[str, str], seconds: float) -> None:
    """Pod, job, PriorityClass, queue, policy; a job's own is cut at the longest that is allowed."""
    world = cluster(calm(minRuntime="1m", longestMinRuntime="1h"))
    marks = {place: {"hekla.io/min-runtime": text} for place, text in stated.items()}
    world.state.upsert_queue(
        {"metadata": {"name": "default", "annotations": marks.get("queue", {})}, "spec": {}}
    )
    world.state.upsert_priority_class(
        {"metadata": {"name": "low", "annotations": marks.get("class", {})}, "value": 1}
    )
    runs(world, "train", cpu=4, annotations=marks.get("job"))
    if "pod" in marks:
        pod = world.pods["default/train-task-0"]
        pod["metadata"]["annotations"].update(marks["pod"])
        world.state.upsert_pod(pod)
    claims(world)
    if seconds:
        assert evicted(after(world, seconds - 1)) == []
    assert evicted(after(world, 1)) == ["train-task-0"]


@pytest.mark.parametrize("action", ["preempt", "reclaim", "gangpreempt", "gangreclaim"])
def test_no_action_passes_it_by(action: str) -> None:
    world = cluster(calm(f"enqueue, allocate, {action}", minRuntime="10m"))
    world.queue("theirs", deserved={"cpu": 0})
    world.queue("ours", deserved={"cpu": 4})
    across = "reclaim" in action
    runs(world, "train", pods=4, queue="theirs" if across else "ours")
    claims(world, queue="ours")
    assert evicted(after(world, 599)) == []
    assert "the minimum runtime that the policy states ends at" in world.why("urgent")
    assert len(evicted(after(world, 1))) == 1


def test_shuffle_minds_it_too() -> None:
    class Names(Greedy):
        name = "names"

        def victim_tasks(self, candidates: Any) -> Any:
            return candidates

    rules = policy(
        plugins=["names", "predicates", {"name": CALM, "arguments": {"minRuntime": "1m"}}],
        actions="allocate, shuffle",
        custom=[Names],
    )
    world = cluster(rules)
    runs(world, "train")
    assert evicted(after(world, 59)) == []
    assert evicted(after(world, 1)) == ["train-task-0"]


# ---------------------------------------------------------------------------------- who leaves first


def test_who_has_just_saved_its_work_leaves_first() -> None:
    world = cluster(calm())
    saved = {"hekla.io/last-checkpoint": stamp(world.now + 3500)}
    runs(world, "saved", annotations=saved)
    runs(world, "unsaved", pods=3)
    claims(world)
    assert evicted(after(world, 3600)) == ["saved-task-0"]


def test_what_a_restart_costs_counts() -> None:
    world = cluster(calm())
    runs(world, "quick", pods=2)
    runs(world, "slow", pods=2, annotations={"hekla.io/restart-cost": "1h"})
    claims(world, pods=2)
    assert sorted(evicted(after(world, 60))) == ["quick-task-0", "quick-task-1"]


def test_priority_goes_before_cost() -> None:
    world = cluster(calm(), cpu=2)
    saved = {"hekla.io/last-checkpoint": stamp(world.now + 3600)}
    runs(world, "better", priority="mid", annotations=saved)
    runs(world, "lesser")
    claims(world)
    assert evicted(after(world, 3600)) == ["lesser-task-0"]


def test_gangs_by_cost() -> None:
    world = cluster(calm("enqueue, allocate, gangpreempt"))
    runs(world, "dear", pods=2, min_available=2)
    saved = {"hekla.io/last-checkpoint": stamp(world.now + 3500)}
    runs(world, "cheap", pods=2, min_available=2, annotations=saved)
    claims(world, pods=2)
    gone = evicted(after(world, 3600))
    assert sorted(gone) == ["cheap-task-0", "cheap-task-1"]


# -------------------------------------------------------------------------------------------- rates


@pytest.mark.parametrize("action", ["preempt", "gangpreempt"])
def test_only_so_many_leave_at_once(action: str) -> None:
    world = cluster(calm(f"enqueue, allocate, {action}", evictionRate="2/1h"))
    runs(world, "train", pods=4)
    for number in range(4):
        claims(world, f"urgent-{number}")
    assert len(evicted(after(world, 1))) == 2
    assert evicted(after(world, 1)) == []
    assert "the cluster has had as many evictions as its rate of 2/1h allows" in (
        world.why("urgent-2") + world.why("urgent-3")
    )
    assert evicted(after(world, 3597)) == []
    assert len(evicted(after(world, 2))) == 2


def test_a_gang_that_needs_more_than_the_rate_evicts_nobody() -> None:
    world = cluster(calm(evictionRate="2/1h"))
    runs(world, "train", pods=4)
    claims(world, pods=3)
    assert evicted(after(world, 1)) == []


def test_queues_have_rates_of_their_own() -> None:
    world = cluster(calm("enqueue, allocate, reclaim", queueEvictionRate="0/1h"), cpu=8)
    for queue, rate in (("calm", ""), ("lively", "1/1h")):
        marks = {"hekla.io/eviction-rate": rate} if rate else {}
        world.state.upsert_queue(
            {
                "metadata": {"name": queue, "annotations": marks},
                "spec": {"deserved": {"cpu": "1"}, "reclaimable": True},
                "status": {"state": "Open"},
            }
        )
        runs(world, f"of-{queue}", pods=4, queue=queue)
    world.queue("ours", deserved={"cpu": 6})
    for number in range(3):
        claims(world, f"claim-{number}", queue="ours")
    decisions = after(world, 1)
    assert [pod.partition("-task")[0] for pod in evicted(decisions)] == ["of-lively"]


# ------------------------------------------------------------------------------------------- gangs


def test_a_semi_preemptible_gang_gives_what_is_above_its_minimum() -> None:
    marks = {"hekla.io/semi-preemptible": "true"}
    for action in ("preempt", "gangpreempt"):
        world = cluster(
            policy(
                tiers=[["priority", "conformance"], ["gang", "predicates", CALM]],
                actions=f"enqueue, allocate, {action}",
            )
        )
        runs(world, "elastic", pods=4, min_available=3, annotations=marks)
        claims(world, "first")
        claims(world, "second")
        assert len(evicted(after(world, 1))) == 1
        assert "gives only what is above its minimum of 3" in world.why("second")


def test_roles_keep_their_minimum() -> None:
    world = cluster(calm(semiPreemptible=True), cpu=3)
    world.job("roles", pods=0, min_available=1, priority="low", group={"minTaskMember": {"ps": 1}})
    world.pod("ps", job="roles", role="ps", cpu=1)
    world.pod("worker-0", job="roles", role="worker", cpu=1)
    world.pod("worker-1", job="roles", role="worker", cpu=1)
    after(world, 0)
    claims(world, pods=1)
    claims(world, "more", pods=1)
    assert sorted(evicted(after(world, 1))) == ["worker-0", "worker-1"]


# ------------------------------------------------------------------------------------------ notice


def test_a_pod_is_told_before_it_is_evicted() -> None:
    world = cluster(calm(notice="2m", grace="90s"))
    runs(world, "train", pods=4)
    claims(world)
    first = after(world, 10)
    (told,) = notices(first)
    assert evicted(first) == []
    assert (told.at, told.claimant, told.reason) == (world.now + 120, "default/urgent", "preempt")
    marks = world.pods[told.pod]["metadata"]["annotations"]
    assert (marks[EVICT_AT], marks[EVICT_FOR]) == (stamp(told.at), "default/urgent")
    assert [one.node for one in first.pipelined] == ["n1"], "the room is promised meanwhile"
    for _ in range(11):
        later = after(world, 10)
        assert (evicted(later), notices(later)) == ([], []), "nobody else is asked to leave"
    last = after(world, 10)
    assert evicted(last) == [told.pod.removeprefix("default/")]
    assert last.evictions[0].grace == 90
    assert after(world, 1).nodes_of("urgent") == {"n1"}


def test_a_notice_is_taken_back_when_the_room_is_not_needed_any_more() -> None:
    world = cluster(calm(notice="2m"))
    runs(world, "train", pods=4)
    claims(world)
    (told,) = notices(after(world, 10))
    world.nodes("n2", cpu=4)
    assert after(world, 10).nodes_of("urgent") == {"n2"}
    (back,) = notices(after(world, 10))
    assert (back.pod, back.at) == (told.pod, 0)
    assert EVICT_AT not in world.pods[told.pod]["metadata"]["annotations"]
    for _ in range(20):
        assert evicted(after(world, 10)) == []


def test_a_claimer_that_is_deleted_takes_its_notice_along() -> None:
    world = cluster(calm(notice="2m"))
    runs(world, "train", pods=4)
    claims(world)
    after(world, 10)
    world.state.remove_pod("default/urgent-task-0")
    world.state.remove_pod_group("default/urgent")
    (back,) = notices(after(world, 10))
    assert back.at == 0


def test_another_process_keeps_the_notice() -> None:
    world = cluster(calm(notice="2m"))
    runs(world, "train", pods=4)
    claims(world)
    (told,) = notices(after(world, 10))
    fresh = World(world.policy, now=world.now)
    fresh.nodes("n1", cpu=4)
    for level, value in (("low", 1), ("high", 100)):
        fresh.priority_class(level, value)
    fresh.pods, fresh.groups = world.pods, world.groups
    for group in world.groups.values():
        fresh.state.upsert_pod_group(group)
    for pod in world.pods.values():
        fresh.state.upsert_pod(pod)
    for _ in range(11):
        decisions = after(fresh, 10)
        assert (evicted(decisions), notices(decisions)) == ([], [])
    assert evicted(after(fresh, 10)) == [told.pod.removeprefix("default/")]


def test_a_job_may_ask_for_more_notice_and_not_for_more_than_is_allowed() -> None:
    world = cluster(calm(notice="10s", longestNotice="5m"))
    runs(world, "train", cpu=4, annotations={"hekla.io/eviction-notice": "1h"})
    claims(world)
    (told,) = notices(after(world, 1))
    assert told.at == world.now + 300


def test_a_policy_without_the_plugin_takes_notices_back() -> None:
    world = cluster(calm(notice="2m"))
    runs(world, "train", pods=4)
    claims(world)
    after(world, 10)
    world.policy = policy(plugins=["gang", "predicates"])
    (back,) = notices(after(world, 1))
    assert back.at == 0


def test_a_notice_that_could_not_be_written_is_decided_again() -> None:
    world = cluster(calm(notice="2m"))
    runs(world, "train", cpu=4)
    claims(world)
    world.now += 1
    (told,) = notices(world.run())
    world.state.evict_failed(told.pod)
    assert [one.pod for one in notices(after(world, 1))] == [told.pod]


def test_without_notices_decisions_are_written_as_before() -> None:
    decisions = cluster(calm()).run()
    assert "notices" not in msgspec.msgpack.decode(encoded(decisions))


# ------------------------------------------------------------------------------------------- loops


def greedy(**arguments: Any) -> World:
    """One place that two queues claim from each other, and somebody who changes a queue all the
    time."""
    rules = policy(
        plugins=["greedy", "predicates", {"name": CALM, "arguments": arguments}],
        actions="enqueue, allocate, backfill, reclaim",
        custom=[Greedy],
    )
    world = World(rules)
    world.nodes("n1", cpu=1)
    for queue in ("qa", "qb"):
        world.queue(queue)
        world.job(f"job-{queue}", cpu=1, queue=queue)
    return world


def played(world: World, cycles: int) -> tuple[int, list[str]]:
    """Evictions, and what was said of loops."""
    count, said = 0, []
    for number in range(cycles):
        world.queue("other", weight=1 + number % 7)
        decisions = turn(world)
        count += len(decisions.evictions)
        said += [one.message for one in decisions.events if one.reason == "EvictionLoop"]
    return count, said


def test_a_loop_that_outside_changes_keep_alive_is_named_and_stopped() -> None:
    count, _ = played(greedy(loopWindow="0s"), 100)
    assert count > 40, "it would go on for ever"
    count, said = played(world := greedy(loopWindow="10m"), 100)
    assert count <= 4
    assert said[0].startswith(
        "queue qa and queue qb took the same room from each other 3 times within 10m; none of them "
        "takes from another until "
    )
    assert "kept apart until" in world.why("job-qa") + world.why("job-qb")
    world.now += 600
    assert played(world, 100)[0] <= 4, "and again after the window"


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"minRuntime": "soon"}, "minRuntime = 'soon': 'soon' is not a duration"),
        ({"notice": "-1m"}, "notice = '-1m': '-1m' is less than 0"),
        (
            {"evictionRate": "10"},
            "evictionRate = '10': '10' is not a number of evictions in a time",
        ),
        ({"queueEvictionRate": "a/1h"}, "such as 10/1h"),
        ({"minRunTime": "1m"}, 'argument "minRunTime" does not exist; did you mean "minRuntime"?'),
    ],
)
def test_arguments_that_mean_nothing_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError) as refused:
        calm(**arguments)
    assert said in str(refused.value)


def test_annotations_that_mean_nothing_are_told() -> None:
    world = cluster(calm())
    world.state.upsert_queue(
        {"metadata": {"name": "default", "annotations": {"hekla.io/eviction-rate": "many"}}}
    )
    world.job("train", annotations={"hekla.io/min-runtime": "soon"})
    said = {
        (one.kind, one.key): one.message
        for one in after(world, 1).events
        if one.reason == "UnreadableAnnotation"
    }
    assert said == {
        (
            "Queue",
            "default",
        ): "hekla.io/eviction-rate: 'many' is not a number of evictions in a time, "
        "such as 10/1h. Until then it counts as absent.",
        (
            "PodGroup",
            "default/train",
        ): "hekla.io/min-runtime: 'soon' is not a duration such as 90s or "
        "1h30m. Until then it counts as absent.",
    }


def test_a_policy_that_does_not_answer_says_so() -> None:
    world = World(policy(plugins=["gang", "predicates"]))
    world.nodes("n1")
    world.job("train", annotations={"hekla.io/min-runtime": "1h"})
    (said,) = [one.message for one in after(world, 1).events if one.reason == "Ignored"]
    assert said.startswith("The scheduler ignores hekla.io/min-runtime (plugin calm-eviction)")


# ------------------------------------------------------------------------------------ it comes to rest

VARIANTS: dict[str, dict[str, Any]] = {
    "minimum runtime": {"minRuntime": "3s"},
    "rates": {"evictionRate": "2/4s", "queueEvictionRate": "1/3s"},
    "notice": {"notice": "3s"},
    "semi-preemptible": {"semiPreemptible": True},
    "everything": {
        "minRuntime": "2s",
        "evictionRate": "3/4s",
        "notice": "2s",
        "semiPreemptible": True,
        "loopWindow": "20s",
    },
}
SEEDS = 2
LONGEST = 8
"""Cycles of a second without a decision after which nothing more comes: longer than any window."""


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_clusters_come_to_rest(layout: str, variant: str) -> None:
    for seed in range(SEEDS):
        world = drawn(layout, seed)
        tiers, actions = LAYOUTS[layout]
        first, *rest = tiers
        option = {"name": CALM, "arguments": VARIANTS[variant]}
        world.policy = policy(tiers=[[*first, option], *rest], actions=actions)
        world.tells_starts = True
        assert settled(world, most=200, still_for=LONGEST).quiet, seed
        more_jobs(world, seed)
        assert settled(world, most=200, still_for=LONGEST).quiet, seed


def test_it_changes_nothing_where_nothing_is_asked_of_it() -> None:
    """With its defaults but for the order of victims, the same pods leave."""
    for seed in range(4):
        worlds = drawn("all actions", seed), drawn("all actions", seed)
        tiers, actions = LAYOUTS["all actions"]
        option = {"name": CALM, "arguments": {"cheapestFirst": False, "loopWindow": "0s"}}
        worlds[1].policy = policy(tiers=[[*tiers[0], option], *tiers[1:]], actions=actions)
        for _ in range(20):
            plain, with_it = (turn(world) for world in worlds)
            assert plain.evictions == with_it.evictions
            assert plain.binds == with_it.binds


def test_both_actions_are_in_the_layouts() -> None:
    assert any(actions == BOTH for _, actions in LAYOUTS.values())


# ---------------------------------------------------------------------------------------- the page

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "calm-eviction"


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "calm-eviction.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert block == (EXAMPLES / "policy.yaml").read_text()
    named = set(re.findall(r"\(\.\./examples/calm-eviction/([\w.]+)\)", page))
    assert named == {path.name for path in EXAMPLES.iterdir()}


def test_the_example_does_what_the_page_says() -> None:
    """The job keeps two workers; the others run for half an hour, and are told two minutes before."""
    manifest = yaml.safe_load((EXAMPLES / "job.yaml").read_text())
    (task,) = manifest["spec"]["tasks"]
    world = cluster(read_policy(yaml.safe_load((EXAMPLES / "policy.yaml").read_text())))
    runs(
        world,
        "train",
        pods=task["replicas"],
        min_available=manifest["spec"]["minAvailable"],
        annotations=manifest["metadata"]["annotations"],
    )
    for number in range(3):
        claims(world, f"urgent-{number}")
    assert not notices(after(world, 1799))
    told = notices(after(world, 1))
    assert len(told) == 2
    assert not evicted(after(world, 119))
    last = after(world, 1)
    assert len(evicted(last)) == 2
    assert {one.grace for one in last.evictions} == {60}
    waiting = "".join(world.why(f"urgent-{number}") for number in range(3))
    assert "job train gives only what is above its minimum of 2" in waiting
