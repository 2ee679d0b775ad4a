"""tdm, pdb, cdp, and the action that evicts whom plugins name."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pytest

from hekla.api.text.times import stamp
from hekla.engine.framework.plugin import Plugin
from hekla.engine.framework.policy import PolicyError
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.time.durations import seconds, zone
from hekla.engine.placement.placer import placer_of
from hekla.engine.plugins.fairness.tdm import trouble, window
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import bound, evicted, group, job, lone, names, opened, task

NOON = 1_000_000.0
"""13:46:40 in UTC, on 12 January 1970."""
ALWAYS, CLOSED = "0:00-0:00", "0:00-0:01"


@pytest.mark.scenario("plugins-fairness", 111)
@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("00:00_01:00", None), ("0:00", None), ("1:0-0:0", None), ("63:59-23:59", None),
        ("00:00-01:00", 3600), ("0:00-23:59", 86340), ("1:00-0:00", 82800), ("  1:00-0:00  ", 82800), ("23:59-23:59", 86400),
        ("1:00 - 2:00", None), ("24:00-1:00", None), ("1:60-2:00", None), ("001:00-2:00", None), ("1:00-2:00-3:00", None), ("", None),
        ("٠١:00-02:00", None),
    ],
)  # fmt: skip
def test_windows(text: str, length: int | None) -> None:
    found = window(text)
    assert (None if found is None else (found[1] - found[0]).total_seconds()) == length


@pytest.mark.parametrize(
    ("text", "clock", "is_open"),
    [
        ("9:00-18:30", "8:59:59", False), ("9:00-18:30", "9:00:00", True),
        ("9:00-18:30", "18:30:00", True), ("9:00-18:30", "18:30:01", False),
        ("0:00-0:00", "0:00:00", True), ("0:00-0:00", "23:59:59", True),
        ("22:00-06:00", "23:00:00", True), ("22:00-06:00", "3:00:00", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("local", ["UTC", "+05:30", "-11:00", "Pacific/Auckland"])
def test_when_a_window_is_open(text: str, clock: str, is_open: bool, local: str) -> None:
    """In whole seconds, both ends included, by the clock of the zone that was handed in."""
    hour, minute, second = map(int, clock.split(":"))
    now = datetime(2026, 7, 1, hour, minute, second, tzinfo=zone(local)).timestamp() + 0.9
    assert (trouble("z", text, now, zone(local)) == "") is is_open
    assert trouble("z", "never", now, zone(local)) == "revocable zone never format error"


def lent(*, victims: bool = False, **zones: str) -> World:
    arguments = {f"tdm.revocable-zone.{name}": text for name, text in zones.items()} | {
        "tdm.evict.period": "1m"
    }
    plugins: list[Any] = [
        {"name": "tdm", "arguments": arguments},
        *([] if victims else ["predicates", "nodeorder"]),
    ]
    return World(policy(plugins=plugins, actions="shuffle" if victims else "allocate"))


@pytest.mark.scenario("plugins-fairness", 112)
def test_who_may_use_lent_nodes_and_when() -> None:
    world = lent(rz1=ALWAYS, rz2=CLOSED)
    world.nodes("plain", cpu=1)
    for number, name in enumerate(("rz1", "rz2", "rz3")):
        world.nodes(f"n{number + 1}", cpu=1, labels={"volcano.sh/revocable-zone": name})
    lone(world, "any", cpu=1, annotations={"volcano.sh/revocable-zone": "*"})
    lone(world, "none", cpu=1)
    lone(world, "labelled", cpu=1, labels={"volcano.sh/preemptable": "true"})
    lone(world, "noted", cpu=1, annotations={"volcano.sh/preemptable": "true"})
    session = opened(world)
    feasible = {
        name: {
            world.state.nodes.names[row]
            for row in placer_of(session).filters.feasible(session, task(world, name)).nonzero()[0]
        }
        for name in ("any", "none", "labelled", "noted")
    }
    assert feasible == {
        "any": {"plain", "n1"},
        "noted": {"plain", "n1"},
        "none": {"plain"},
        "labelled": {"plain"},
    }
    (plugin,) = [one for one in session.hooks.plugins if one.name == "tdm"]
    (score,) = plugin.scores()
    raw = score.raw(
        task(world, "any").pods, NodeView(world.state.nodes, np.arange(4)), task(world, "any")
    )
    assert raw is not None
    assert raw.tolist() == [0, 100, 0, 0]
    assert bound(world.run())["any"] == "n1", "100 points for the node that is lent"


def test_why_not_on_a_lent_node() -> None:
    world = lent(rz1=ALWAYS, rz2=CLOSED)
    for number, name in enumerate(("rz1", "rz2", "rz3")):
        world.nodes(
            f"n{number + 1}", cpu=min(number + 1, 2), labels={"volcano.sh/revocable-zone": name}
        )
    lone(world, "none", cpu=1)
    lone(world, "any", cpu=2, annotations={"volcano.sh/revocable-zone": "*"})
    world.run()
    reasons = {one.reason for one in world.decisions.explanations["default/pg-any"].reasons}
    assert {
        "current time beyond revocable zone rz2:0:00-0:01",
        "revocable zone rz3 not support",
    } <= reasons
    reasons = {one.reason for one in world.decisions.explanations["default/pg-none"].reasons}
    assert "not allow to dispatch to revocable node" in reasons


def test_windows_go_by_the_clock_that_is_handed_in() -> None:
    for local, expected in (("UTC", {}), ("+02:00", {"p": "n1"})):
        world = lent(rz1="15:00-16:00")
        world.state.zone = zone(local)
        world.nodes("n1", cpu=1, labels={"volcano.sh/revocable-zone": "rz1"})
        lone(world, "p", cpu=1, annotations={"volcano.sh/revocable-zone": "*"})
        assert bound(world.run()) == expected


def test_a_window_that_is_none_is_refused() -> None:
    with pytest.raises(
        PolicyError, match=r"tdm.revocable-zone.rz = '9-17': a window such as 9:00-18:30"
    ):
        lent(rz="9-17")


@pytest.mark.parametrize(
    ("budgets", "is_open", "count"),
    [
        pytest.param({"job1": {"max": "30%"}}, False, 2, marks=pytest.mark.scenario("plugins-fairness", 113)),
        pytest.param({"job1": {"max": "30%"}}, True, 0, marks=pytest.mark.scenario("plugins-fairness", 114)),
        pytest.param({"job1": {"max": "99%"}}, False, 3, marks=pytest.mark.scenario("plugins-fairness", 115)),
        pytest.param({"job2": {"max": "50%"}}, False, 3, marks=pytest.mark.scenario("plugins-fairness", 116)),
        pytest.param({"job2": {"max": "50%"}, "job1": {"max": "90%"}}, False, 6, marks=pytest.mark.scenario("plugins-fairness", 117)),
        pytest.param({"job2": {"max": "3"}}, False, 3, marks=pytest.mark.scenario("plugins-fairness", 118)),
        pytest.param({"job2": {"min": "3"}}, False, 2, marks=pytest.mark.scenario("plugins-fairness", 119)),
        pytest.param({"job2": {"min": "30%"}}, False, 3, marks=pytest.mark.scenario("plugins-fairness", 120)),
        pytest.param({"job2": {"min": "2"}, "job1": {"max": "3"}}, False, 6, marks=pytest.mark.scenario("plugins-fairness", 121)),
        ({"job2": {"min": "9"}}, False, 1), ({"job2": {"min": "4", "max": "5"}}, False, 1), ({"job2": {"max": "few"}}, False, 0),
        ({"job2": {}}, False, 1), ({"job2": {"max": "1_0"}}, False, 0),
    ],
)  # fmt: skip
def test_when_time_is_over(budgets: dict[str, dict[str, str]], is_open: bool, count: int) -> None:
    """Five pods a job; of job1 three may be preempted."""
    world = lent(victims=True, rz1=ALWAYS if is_open else CLOSED)
    world.nodes("n1", cpu=100, labels={"volcano.sh/revocable-zone": "rz1"})
    keys = {"max": "volcano.sh/jdb-max-unavailable", "min": "volcano.sh/jdb-min-available"}
    for name, budget in budgets.items():
        group(world, name, annotations={keys[key]: value for key, value in budget.items()})
        for number in range(5):
            world.pod(
                f"{name}-{number}",
                job=name,
                node="n1",
                cpu=1,
                preemptable=name == "job2" or number < 3,
            )
    decisions = world.run()
    assert len(decisions.evictions) == count
    assert {one.reason for one in decisions.evictions} <= {"shuffle"}


def test_not_more_often_than_its_period() -> None:
    """Nor because the policy was read anew."""
    world = lent(victims=True, rz1=CLOSED)
    world.nodes("n1", cpu=100, labels={"volcano.sh/revocable-zone": "rz1"})
    group(world, "g")
    for number in range(3):
        world.pod(f"g{number}", job="g", node="n1", preemptable=True)
    counts = []
    for _ in range(4):
        counts.append(len(world.run().evictions))
        world.policy = policy(
            plugins=[{"name": "tdm", "arguments": {"tdm.revocable-zone.rz1": CLOSED}}],
            actions="shuffle",
        )
        world.settle()
        world.now += 30
    assert counts == [1, 0, 1, 0]


def test_who_preempts_on_nodes_that_are_not_lent() -> None:
    world = lent(victims=True, rz1=ALWAYS)
    world.nodes("plain")
    world.nodes("n1", labels={"volcano.sh/revocable-zone": "rz1"})
    group(world, "g", annotations={"volcano.sh/jdb-max-unavailable": "2"})
    for number, node in enumerate(("plain", "n1", "plain", "plain")):
        world.pod(f"g{number}", job="g", node=node, preemptable=number != 0)
    lone(world, "firm", preemptable=False)
    lone(world, "loose", preemptable=True)
    session = opened(world)
    candidates = [task(world, f"g{number}") for number in range(4)]
    assert names(session.votes.preemptable(task(world, "firm"), candidates)) == ["g2", "g3"]
    assert session.votes.preemptable(task(world, "loose"), candidates) == []
    assert session.votes.job_starving(job(world, "pg-firm"))


def protected(allowed: int | None, *plugins: Any, disrupted: tuple[str, ...] = ()) -> World:
    world = World(policy(plugins=["pdb", *plugins], actions="shuffle"))
    world.nodes("n1")
    for name in ("a", "b"):
        lone(world, name, node="n1", labels={"app": "shop"})
    lone(world, "bare", node="n1")
    lone(world, "claims")
    if allowed is not None:
        world.state.upsert_other(
            "PodDisruptionBudget",
            {
                "metadata": {"name": "shop", "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": "shop"}}},
                "status": {
                    "disruptionsAllowed": allowed,
                    "disruptedPods": dict.fromkeys(disrupted, "1970-01-01T00:00:00Z"),
                },
            },
        )
    return world


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        pytest.param(None, ["a", "b"], marks=pytest.mark.scenario("plugins-fairness", 122)),
        pytest.param(0, [], marks=pytest.mark.scenario("plugins-fairness", 123)),
        pytest.param(1, ["a"], marks=pytest.mark.scenario("plugins-fairness", 124)),
    ],
)
@pytest.mark.parametrize("ask", ["preemptable", "reclaimable", "victim_tasks"])
def test_disruption_budgets(allowed: int | None, expected: list[str], ask: str) -> None:
    world = protected(allowed)
    session = opened(world)
    candidates = [task(world, name) for name in ("a", "b")]
    given = (candidates,) if ask == "victim_tasks" else (task(world, "claims"), candidates)
    assert names(getattr(session.votes, ask)(*given)) == expected


def test_pods_that_are_gone_in_the_books_cost_no_budget_and_bare_pods_stay() -> None:
    world = protected(1, disrupted=("a",))
    session = opened(world)
    candidates = [task(world, name) for name in ("a", "b", "bare")]
    assert names(session.votes.preemptable(task(world, "claims"), candidates)) == ["a", "b"]


class Everybody(Plugin):
    """Names all."""

    name = "everybody"

    def victim_tasks(self, candidates: list[Any]) -> list[Any]:
        return candidates


def test_budgets_spare_victims_of_others_and_name_none() -> None:
    assert evicted(protected(None).run()) == []
    world = protected(1)
    world.policy = policy(tiers=[["everybody"], ["pdb"]], actions="shuffle", custom=[Everybody])
    assert evicted(world.run()) == ["a"]


def test_a_budget_is_used_up_within_a_cycle() -> None:
    """Two jobs preempt on two nodes; the budget of one covers one eviction, not one on each node."""
    world = World(policy(plugins=["priority", "pdb", "predicates"], actions="preempt"))
    world.priority_class("high", 10)
    for number in (1, 2):
        world.nodes(f"n{number}", cpu=1)
        lone(world, f"held{number}", node=f"n{number}", cpu=1, labels={"app": "shop"})
        lone(world, f"wants{number}", cpu=1, priority="high")
    world.state.upsert_other(
        "PodDisruptionBudget",
        {
            "metadata": {"name": "shop", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "shop"}}},
            "status": {"disruptionsAllowed": 1},
        },
    )
    assert len(evicted(world.run())) == 1


@pytest.mark.scenario("plugins-fairness", 125)
@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("600s", 600.0),
        ("600abcde", None),
        ("600", None),
        ("0", 0.0),
        ("-1m", -60.0),
        ("400000h", 1.44e9),
        ("4000000h", None),
    ],
)
def test_cooldown_times(text: str, length: float | None) -> None:
    try:
        assert seconds(text) == length
    except ValueError:
        assert length is None


def since(world: World, pod: str, age: float) -> None:
    """The pod was scheduled so many seconds ago."""
    when = stamp(world.now - age)
    conditions = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": when}]
    world.pods[f"default/{pod}"]["status"]["conditions"] = conditions
    world.state.upsert_pod(world.pods[f"default/{pod}"])


@pytest.mark.scenario("plugins-fairness", 126)
@pytest.mark.parametrize("ask", ["preemptable", "reclaimable"])
def test_who_has_just_started_is_left_alone(ask: str) -> None:
    world = World(policy(plugins=["cdp"]))
    world.nodes("n1")
    key = "volcano.sh/cooldown-time"
    for name, text, age in (("young", "600s", 100), ("odd", "600abcde", 100), ("old", "600s", 800)):
        lone(world, name, node="n1", labels={key: text})
        since(world, name, age)
    lone(world, "noted", node="n1", annotations={key: "10m"})
    since(world, "noted", 100)
    lone(world, "both", node="n1", annotations={key: "10m"}, labels={key: "soon"})
    since(world, "both", 100)
    lone(world, "claims")
    session = opened(world)
    candidates = [task(world, name) for name in ("young", "odd", "old", "noted", "both")]
    assert names(getattr(session.votes, ask)(task(world, "claims"), candidates)) == [
        "odd",
        "old",
        "both",
    ]


class Lowly(Plugin):
    """Names whom priority 10 makes small."""

    name = "lowly"

    def victim_tasks(self, candidates: list[Any]) -> list[Any]:
        return [one for one in candidates if one.priority == 10]


@pytest.mark.scenario("plugins-fairness", 127)
def test_shuffle_evicts_whom_a_plugin_names() -> None:
    world = World(policy(plugins=["lowly"], actions="shuffle", custom=[Lowly]))
    world.nodes("node1", "node2")
    for number, (node, priority) in enumerate(
        (("node1", 10), ("node1", 100), ("node2", 10), ("node2", 10), ("node2", 100))
    ):
        lone(world, f"p{number}", node=node, spec={"priority": priority})
    lone(world, "waits", spec={"priority": 10})
    assert sorted(evicted(world.run())) == ["p0", "p2", "p3"]
