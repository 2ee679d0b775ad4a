"""Fair share with memory: what was used, how it fades, and whose turn it is then."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hekla.engine.framework.policy import Policy, PolicyError
from hekla.engine.plugins.fairness.fairshare import SAVED, fair_shares, written
from hekla.engine.policies import read_policy
from hekla.engine.world import World, policy

HOUR = 3600.0
MINUTES = 240
ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "fair-share"


def fair(before: list[Any] | None = None, **arguments: Any) -> Policy:
    given = {f"fairshare.{name}": value for name, value in arguments.items()}
    given.setdefault("fairshare.resourceKey", "cpu")
    return policy(
        plugins=[
            *(before or []),
            "gang",
            {"name": "fairshare", "arguments": given},
            "predicates",
        ],
        actions="enqueue, allocate",
    )


def cluster(rules: Policy, cpu: int = 4) -> World:
    world = World(rules)
    world.nodes("n1", cpu=cpu)
    return world


def submitted(world: World, who: str, jobs: int = 1, prefix: str = "", **more: Any) -> None:
    """So many jobs of one cpu of a namespace."""
    for number in range(jobs):
        world.job(f"{prefix}{who}-{number}", namespace=who, **{"cpu": 1, **more})


def after(world: World, seconds: float) -> list[str]:
    """So many seconds later, a cycle, which comes true: the jobs that were bound, in order."""
    world.now += seconds
    decisions = world.run()
    assert decisions.problems == []
    world.settle()
    return [bind.job.rpartition("/")[2] for bind in decisions.binds]


def ended(world: World, job: str, namespace: str) -> None:
    for tree in world.pods.values():
        meta = tree["metadata"]
        if (
            meta["namespace"] == namespace
            and meta["annotations"].get("scheduling.k8s.io/group-name") == job
        ):
            tree["status"]["phase"] = "Succeeded"
            world.state.upsert_pod(tree)


def used(world: World, queue: str = "default") -> dict[str, float]:
    """cpu hours by party."""
    usage = world.state.job_table.usage
    assert usage is not None
    return {
        party: round(amount / 1000 / HOUR, 6) for party, amount in usage.used.get(queue, {}).items()
    }


def test_use_is_counted_and_fades() -> None:
    world = cluster(fair(halfLifeMinutes=10**6))
    submitted(world, "ada", 2)
    after(world, 0)
    after(world, HOUR)
    assert used(world) == {"ada": pytest.approx(2.0, rel=1e-3)}
    world = cluster(fair(halfLifeMinutes=60))
    submitted(world, "ada", 1)
    after(world, 0)
    world.now += HOUR
    ended(world, "ada-0", "ada")
    after(world, 0)
    first = used(world)["ada"]
    after(world, HOUR)
    assert used(world)["ada"] == pytest.approx(first / 2)
    after(world, 40 * HOUR)
    assert used(world) == {}, "what is next to nothing is forgotten"


def test_who_has_used_less_goes_first() -> None:
    world = cluster(fair())
    submitted(world, "ada", 4)
    assert len(after(world, 0)) == 4
    world.now += HOUR
    for number in range(4):
        ended(world, f"ada-{number}", "ada")
    submitted(world, "ada", 4, prefix="more-")
    submitted(world, "bob", 2)
    assert sorted(after(world, 1)) == ["bob-0", "bob-1", "more-ada-0", "more-ada-1"]
    assert sorted(after(world, 24 * HOUR)) == []


def test_who_has_used_the_same_alternates_within_one_cycle() -> None:
    world = cluster(fair())
    submitted(world, "ada", 9)
    submitted(world, "bob", 9)
    assert sorted(after(world, 0)) == ["ada-0", "ada-1", "bob-0", "bob-1"]


def test_weights_of_namespaces() -> None:
    world = cluster(fair(**{"weight.bob": 3}), cpu=8)
    marks = {"hekla.io/fair-share-weight": "3"}
    world.state.upsert_namespace({"metadata": {"name": "eve", "annotations": marks}})
    for who in ("ada", "bob", "eve"):
        submitted(world, who, 9)
    bound = after(world, 0)
    assert [sum(job.startswith(who) for job in bound) for who in ("ada", "bob", "eve")] in (
        [2, 3, 3],
        [1, 4, 3],
        [1, 3, 4],
    )


def test_accounts_are_compared_from_the_top() -> None:
    """An account with many users gets no more than one with a single user."""
    world = cluster(fair(identity="account"), cpu=6)
    for user in "abcde":
        marks = {"hekla.io/account": "physics/lasers", "hekla.io/user": user}
        submitted(world, f"p{user}", 3, annotations=marks)
    marks = {"hekla.io/account": "biology", "hekla.io/user": "zoe"}
    submitted(world, "zoe", 9, annotations=marks)
    bound = after(world, 0)
    assert sum(job.startswith("zoe") for job in bound) == 3
    assert len({job[:2] for job in bound if job.startswith("p")}) == 3, "its users alternate, too"
    after(world, HOUR)
    assert set(used(world)) == {
        "biology/zoe",
        *(f"physics/lasers/{job[1]}" for job in bound if job.startswith("p")),
    }


def test_the_namespace_says_the_account_before_the_job_does() -> None:
    world = cluster(fair(identity="account"))
    marks = {"hekla.io/account": "students"}
    world.state.upsert_namespace({"metadata": {"name": "eve", "annotations": marks}})
    submitted(world, "eve", 1, annotations={"hekla.io/account": "professors"})
    after(world, 0)
    after(world, HOUR)
    assert set(used(world)) == {"students/eve"}
    world.state.upsert_namespace({"metadata": {"name": "eve"}})
    after(world, 0)
    after(world, HOUR)
    assert set(used(world)) == {"students/eve", "professors/eve"}


def test_users_across_namespaces() -> None:
    world = cluster(fair(identity="user"))
    for namespace in ("one", "two"):
        submitted(world, namespace, 1, annotations={"hekla.io/user": "ada"})
    submitted(world, "three", 1)
    after(world, 0)
    after(world, HOUR)
    assert set(used(world)) == {"ada", "three"}


def test_priority_goes_before_it_and_orders_one_partys_jobs() -> None:
    world = cluster(fair(before=["priority"]), cpu=1)
    world.priority_class("high", 10)
    submitted(world, "ada", 1)
    after(world, 0)
    world.now += HOUR
    ended(world, "ada-0", "ada")
    submitted(world, "bob", 1)
    submitted(world, "ada", 1, prefix="low-")
    submitted(world, "ada", 1, prefix="urgent-", priority="high")
    assert after(world, 0) == ["urgent-ada-0"]
    ended(world, "urgent-ada-0", "ada")
    assert after(world, 0) == ["bob-0"]


def test_queues_by_what_they_have_used() -> None:
    rules = policy(
        plugins=[
            "gang",
            {
                "name": "fairshare",
                "arguments": {"fairshare.resourceKey": "cpu", "fairshare.orderQueues": True},
            },
            "predicates",
            "proportion",
        ],
        actions="enqueue, allocate",
    )
    world = cluster(rules, cpu=2)
    for queue in ("busy", "idle"):
        world.queue(queue)
    submitted(world, "ada", 2, queue="busy")
    after(world, 0)
    world.now += HOUR
    for number in range(2):
        ended(world, f"ada-{number}", "ada")
    submitted(world, "ada", 1, prefix="busy-", queue="busy")
    submitted(world, "bob", 1, prefix="idle-", queue="idle")
    assert after(world, 0)[0] == "idle-bob-0"


def test_other_queues_are_left_alone() -> None:
    world = cluster(fair(targetQueues="gpu"))
    submitted(world, "ada", 1)
    after(world, 0)
    after(world, HOUR)
    assert used(world) == {}


def test_each_queue_has_its_resource() -> None:
    world = cluster(fair(**{"resourceKey.small": "memory"}))
    world.queue("small")
    submitted(world, "ada", 1, queue="small", memory="1Gi")
    after(world, 0)
    after(world, 1)
    usage = world.state.job_table.usage
    assert usage is not None
    assert usage.used["small"]["ada"] == pytest.approx(2**30, rel=1e-3)


def test_the_gate() -> None:
    world = cluster(fair(enableEnqueueGate="true"))
    submitted(world, "ada", 3)
    after(world, 0)
    submitted(world, "bob", 3, phase="Pending", min_resources={"cpu": 1})
    submitted(world, "ada", 3, prefix="more-", phase="Pending", min_resources={"cpu": 1})
    after(world, 1)
    assert "ada holds 3 of its fair share of 2 cpu in queue default" in world.why(
        "more-ada-0", "ada"
    )
    assert world.phase("bob-0", "bob") != "Pending"


@given(
    st.dictionaries(st.sampled_from("abcde"), st.integers(0, 20)),
    st.integers(0, 40),
    st.lists(st.integers(1, 5), min_size=5, max_size=5),
)
def test_fair_shares_are_max_min_fair(
    wanted: dict[str, int], total: int, weights: list[int]
) -> None:
    by_party = dict(zip("abcde", map(float, weights)))
    shares = fair_shares(wanted, total, by_party)
    assert sum(shares.values()) <= total + 1e-9
    assert all(share <= wanted[party] + 1e-9 for party, share in shares.items())
    short = [party for party in shares if shares[party] < wanted[party] - 1e-9]
    if short:
        assert sum(shares.values()) == pytest.approx(total)
        level = {round(shares[party] / by_party[party], 9) for party in short}
        assert len(level) == 1
        assert all(
            shares[party] / by_party[party] <= max(level) + 1e-9
            for party in shares
            if party not in short
        )


@pytest.mark.parametrize("seed", range(4))
def test_how_often_cycles_run_makes_no_difference(seed: int) -> None:
    """Jobs come and end at the same moments; one world has many cycles in between.  Both count what
    a plain sum over seconds counts."""
    worlds = cluster(fair(halfLifeMinutes=1), cpu=8), cluster(fair(halfLifeMinutes=1), cpu=8)
    draw = random.Random(seed)
    plain: dict[str, float] = {}
    held: dict[str, set[str]] = {}
    for number in range(12):
        who, lasts = draw.choice(["ada", "bob"]), draw.randint(1, 40)
        running = sum(map(len, held.values()))
        for world in worlds:
            if running < 8:
                submitted(world, who, 1, prefix=f"j{number}-")
            after(world, 0)
        if running < 8:
            held.setdefault(who, set()).add(f"j{number}-{who}-0")
        steps = 1000
        for _ in range(steps):
            left = 2.0 ** (-lasts / steps / 60)
            for name in {*plain, *held}:
                middle = len(held.get(name, ())) * lasts / steps * 2.0 ** (-lasts / steps / 120)
                plain[name] = plain.get(name, 0.0) * left + middle
        for _ in range(9):
            after(worlds[1], lasts / 10)
        worlds[0].now += lasts
        worlds[1].now = worlds[0].now
        if draw.random() < 0.6 and any(held.values()):
            name = draw.choice(sorted(one for one in held if held[one]))
            job = held[name].pop()
            for world in worlds:
                ended(world, job, name)
        for world in worlds:
            after(world, 0)
    counted = [
        {party: round(hours * HOUR, 2) for party, hours in used(world).items()} for world in worlds
    ]
    for party, amount in plain.items():
        for one in counted:
            assert one.get(party, 0.0) == pytest.approx(amount, rel=1e-3, abs=0.02)


def test_another_process_goes_on_from_what_was_written_down() -> None:
    world = cluster(fair(halfLifeMinutes=60))
    submitted(world, "ada", 1)
    after(world, 0)
    after(world, HOUR)
    usage = world.state.job_table.usage
    assert usage is not None
    saved = written(usage)
    assert saved["lastCycle"] == "1970-01-12T14:46:40Z"
    after(world, HOUR)
    fresh = cluster(fair(halfLifeMinutes=60))
    fresh.now = world.now
    fresh.state.upsert_other(SAVED, {**saved, "metadata": {"name": "usage"}})
    submitted(fresh, "ada", 1, on=["n1"], phase="Running")
    after(fresh, 0)
    assert used(fresh) == {"ada": pytest.approx(used(world)["ada"], rel=1e-6)}


@pytest.mark.parametrize(
    "saved",
    [
        {},
        {"lastCycle": "yesterday", "queues": {"default": {"ada": 1}}},
        {"queues": [1, 2]},
        {"lastCycle": "2026-11-24T14:00:00Z", "queues": {"default": {"ada": "much", "bob": -1}}},
        {"queues": {"default": 7}},
    ],
)
def test_what_was_written_down_wrongly_harms_nobody(saved: dict[str, Any]) -> None:
    world = cluster(fair())
    world.state.upsert_other(SAVED, {**saved, "metadata": {"name": "usage"}})
    submitted(world, "ada", 1)
    assert after(world, 0) == ["ada-0"]


def test_gone_jobs_are_not_remembered() -> None:
    world = cluster(fair())
    submitted(world, "ada", 3)
    after(world, 0)
    for number in range(3):
        world.state.remove_pod(f"ada/ada-{number}-task-0")
        world.state.remove_pod_group(f"ada/ada-{number}")
    after(world, 1)
    usage = world.state.job_table.usage
    assert usage is not None
    assert not usage.holdings
    assert not any(usage.held.values())
    world.policy = policy(plugins=["gang", "predicates"])
    submitted(world, "bob", 3)
    after(world, 1)
    for number in range(3):
        world.state.remove_pod(f"bob/bob-{number}-task-0")
        world.state.remove_pod_group(f"bob/bob-{number}")
    after(world, 1)
    assert not usage.changed, "also when the policy has dropped the plugin"


def test_a_gang_that_is_only_tried_uses_nothing() -> None:
    world = cluster(fair(), cpu=2)
    submitted(world, "ada", 1, pods=3)
    for _ in range(5):
        after(world, 60)
    assert used(world) == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"halfLifeMinutes": 0}, "fairshare.halfLifeMinutes = 0: a whole number from 1 up"),
        ({"flushIntervalSeconds": "often"}, "fairshare.flushIntervalSeconds = 'often'"),
        ({"identity": "group"}, "fairshare.identity = 'group': one of namespace, user, account"),
        ({"weight.ada": 0}, "fairshare.weight.ada = 0: a weight is a number above 0"),
        ({"weight.ada": "much"}, "fairshare.weight.ada = 'much': a weight is a number above 0"),
        ({"resourceKey.q": 3}, "fairshare.resourceKey.q = 3: the name of a resource"),
        ({"halfLife": 3}, 'argument "fairshare.halfLife" does not exist'),
    ],
)
def test_arguments_that_mean_nothing_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(PolicyError) as refused:
        fair(**arguments)
    assert said in str(refused.value)


def test_a_weight_that_means_nothing_is_told() -> None:
    world = cluster(fair())
    marks = {"hekla.io/fair-share-weight": "heavy"}
    world.state.upsert_namespace({"metadata": {"name": "eve", "annotations": marks}})
    (said,) = [one for one in world.run().events if one.reason == "UnreadableAnnotation"]
    assert (said.kind, said.key) == ("Namespace", "eve")
    assert said.message == (
        "hekla.io/fair-share-weight: 'heavy': a weight is a number above 0. Until then it counts as 1."
    )


def test_the_page_shows_the_example() -> None:
    page = (ROOT / "docs" / "fair-share.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert block == (EXAMPLES / "policy.yaml").read_text()
    named = set(re.findall(r"\(\.\./examples/fair-share/([\w.]+)\)", page))
    assert named == {path.name for path in EXAMPLES.iterdir()}


def test_the_example_does_what_the_page_says() -> None:
    """physics has twice the weight of chemistry, whichever of its users asks."""
    world = cluster(read_policy(yaml.safe_load((EXAMPLES / "policy.yaml").read_text())), cpu=9)
    manifest = yaml.safe_load((EXAMPLES / "job.yaml").read_text())
    submitted(world, "a", 9, annotations=manifest["metadata"]["annotations"])
    submitted(world, "b", 9, annotations={"hekla.io/account": "physics/plasma"})
    submitted(world, "c", 9, annotations={"hekla.io/account": "chemistry"})
    bound = after(world, 0)
    counts = [sum(job.startswith(who) for job in bound) for who in "abc"]
    assert counts == [3, 3, 3]
    after(world, HOUR)
    assert "physics/lasers/ada" in used(world)
