"""Calm: who comes back is left alone for longer and longer, a short peak moves nobody, and what pods ask for is kept."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.descheduler.evictions import Outcome
from hekla.descheduler.kept_memory import Kept
from hekla.descheduler.memory import Memory
from hekla.descheduler.policy.policy import Policy, PolicyError
from hekla.descheduler.reading import wishes_of
from hekla.descheduler.returns import FEW_CYCLES, FOR_GOOD, BackOff
from hekla.descheduler.session import CAME_BACK, GANG_CAME_BACK
from hekla.descheduler.tables import Owner, Tables, Wishes
from hekla.descheduler.usage import Usage
from hekla.monitoring.cluster_metrics import Sample
from tests.descheduler.stories import NOW, Ran, measured, node, pod, profile, run, spread

MINUTE, HOUR = 60.0, 3600.0
LOW = "thresholds: {cpu: 30}, targetThresholds: {cpu: 50}"


def low(arguments: str = LOW, more: str = "", evictor: str = "{}") -> Policy:
    return profile("LowNodeUtilization", f"{{{arguments}}}", evictor, "balance", more)


class Stubborn:
    """A cluster in which pods come back to the node that their scheduler prefers."""

    def __init__(self, tables: Tables, prefers: dict[str, str], policy: Policy) -> None:
        self.tables = tables
        self.prefers = prefers
        """Node by owner; who has none goes to the next."""
        self.policy = policy
        self.memory = Memory()
        self.now = NOW
        self.made = 0

    def next(self, node: str) -> str:
        names = list(self.tables.nodes)
        return names[(names.index(node) + 1) % len(names)]

    def cycle(self, after: float) -> Ran:
        """A cycle so much later; what it evicts is made anew at once."""
        self.now += after
        ran = run(self.policy, self.tables, memory=self.memory, now=self.now)
        for eviction in ran.evictions:
            gone = eviction.pod
            self.tables.drop_pod(gone.key)
            self.made += 1
            name, where = (
                f"made-{self.made}",
                self.prefers.get(gone.owners[0].name) or self.next(gone.node),
            )
            self.tables.put_pod(
                replace(gone, name=name, uid=name, node=where, created=float(int(self.now)))
            )
        return ran


def one_stubborn(policy: Policy) -> Stubborn:
    """`web` prefers n1, which is hot with it."""
    pods = [pod("web-1", "n1", 1500), pod("base", "n1", 1000, owners=())]
    return Stubborn(Tables([node("n1"), node("n2")], pods), {"web": "n1"}, policy)


def test_who_comes_back_is_left_alone_twice_as_long_each_time() -> None:
    here = one_stubborn(low())
    evicted = []
    for minute in range(12 * 60):
        ran = here.cycle(MINUTE)
        if ran.evictions:
            evicted.append(minute)
        elif minute:
            assert ran.report.refused["LowNodeUtilization", CAME_BACK] == 1
    waited = [after - before for before, after in pairwise(evicted)]
    assert waited == [6, 11, 21, 41, 81, 161], (
        "5 minutes from when it was seen again, then twice as long"
    )


def test_a_return_is_told_once_with_its_end() -> None:
    here = one_stubborn(low())
    here.cycle(MINUTE)
    (found,) = here.cycle(MINUTE).report.returns
    assert (found.pod.name, found.times, found.until) == ("made-1", 1, here.now + 5 * MINUTE)
    assert str(found.place) == "pods of ReplicaSet default/web on node n1"
    assert here.cycle(MINUTE).report.returns == []


def test_an_owner_that_stays_away_is_forgotten() -> None:
    here = one_stubborn(low())
    here.cycle(MINUTE)
    here.prefers["web"] = "n2"
    here.cycle(6 * MINUTE)
    assert here.cycle(6 * MINUTE).names == ["made-1"]
    assert len(here.memory.returns) == 1
    for _ in range(FEW_CYCLES + 1):
        here.cycle(HOUR)
    assert len(here.memory.returns) == 0


def test_an_owner_whose_node_calmed_is_forgotten_though_it_came_back() -> None:
    here = one_stubborn(low())
    here.cycle(MINUTE)
    here.cycle(MINUTE)
    here.tables.drop_pod("default/base")
    for _ in range(FEW_CYCLES + 1):
        here.cycle(HOUR)
    assert len(here.memory.returns) == 0
    here.tables.put_pod(pod("base", "n1", 1000, owners=()))
    assert here.cycle(MINUTE).names == ["made-1"]


def held_in_a_zone(memory: Memory, sizes: tuple[int, int]) -> Tables:
    """So many pods in two zones, of which one in the first is of an owner that is left alone there for good."""
    pods = [
        pod(f"p{zone}-{number}", f"n{zone}", spreads=spread(), owners=(Owner("ReplicaSet", "web"),))
        for zone, size in enumerate(sizes)
        for number in range(size)
    ]
    pods[0].owners = (Owner("ReplicaSet", "held"),)
    nodes = [node(f"n{zone}", labels={"zone": f"z{zone}"}) for zone in range(2)]
    where = ("default", "ReplicaSet", "held")
    memory.returns.restore([(*where, "n0", NOW, 7, FOR_GOOD, True)], [(*where, NOW, 0)])
    return Tables(nodes, pods)


@pytest.mark.parametrize(("sizes", "remembered"), [((3, 0), True), ((2, 1), False)])
def test_spread_remembers_who_is_held_while_its_domain_gives_pods_up(
    sizes: tuple[int, int], remembered: bool
) -> None:
    memory = Memory()
    tables = held_in_a_zone(memory, sizes)
    policy = profile("RemovePodsViolatingTopologySpreadConstraint", point="balance")
    for number in range(FEW_CYCLES + 2):
        run(policy, tables, memory=memory, now=NOW + number * HOUR, taken=lambda _: False)
    traces, _ = memory.returns.saved()
    assert bool(traces) == remembered


def test_asking_whether_a_pod_is_held_changes_nothing() -> None:
    memory = Memory()
    tables = held_in_a_zone(memory, (1, 1))
    (held,) = tables.on_node["n0"].values()
    before = memory.returns.saved()
    assert memory.returns.held_until(held, NOW + HOUR) == math.inf
    assert memory.returns.saved() == before
    memory.returns.wanted(held, NOW + HOUR)
    assert memory.returns.saved() == (before[0], [(*before[1][0][:3], NOW + HOUR, 0)])


def test_every_held_member_of_a_gang_is_remembered() -> None:
    owners = [Owner("Job", name) for name in ("a", "b")]
    held = [pod(f"w-{one.name}", "n2", 100, owners=(one,), group="g") for one in owners]
    hot = [pod("w-free", "n1", 1500, group="g"), pod("base", "n1", 1000, owners=())]
    tables = Tables([node("n1"), node("n2")], [*hot, *held])
    tables.minimum["default/g"] = 3
    memory = Memory()
    places = [("default", *one) for one in owners]
    memory.returns.restore(
        [(*where, "n2", NOW, 7, FOR_GOOD, True) for where in places],
        [(*where, NOW, 0) for where in places],
    )
    ran = run(low(evictor="{gangPolicy: wholeGroup}"), tables, memory=memory, now=NOW + MINUTE)
    assert ran.names == [] and ran.report.refused["LowNodeUtilization", GANG_CAME_BACK] == 1
    assert [wanted for *_, wanted, _ in memory.returns.saved()[1]] == [NOW + MINUTE] * 2


def test_pods_that_go_for_their_age_may_come_back() -> None:
    here = one_stubborn(profile("PodLifeTime", "{maxPodLifeTimeSeconds: 30}"))
    assert [len(here.cycle(MINUTE).evictions) for _ in range(4)] == [1] * 4


def test_without_a_back_off_everything_is_as_before() -> None:
    here = one_stubborn(low(more="returnBackOff: {first: 0s}"))
    assert [len(here.cycle(MINUTE).evictions) for _ in range(4)] == [1] * 4


def test_the_back_off_ends_in_peace() -> None:
    back_off = BackOff(300, 10800)
    assert [back_off.after(times) for times in (1, 2, 6, 7, 999)] == [
        300,
        600,
        9600,
        math.inf,
        math.inf,
    ]


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from([1000, 2000, 4000]), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.sampled_from([100, 400, 900]), st.integers(0, 4)), max_size=10),
    st.sampled_from([MINUTE, 10 * MINUTE, 24 * HOUR]),
)  # fmt: skip
def test_a_cluster_without_changes_from_outside_settles(
    nodes: list[int], pods: list[tuple[int, int, int, int]], every: float
) -> None:
    made = [
        pod(f"p{number}", f"n{at % len(nodes)}", cpu, owners=(Owner("ReplicaSet", f"o{owner}"),))
        for number, (at, _, cpu, owner) in enumerate(pods)
    ]
    prefers = {f"o{owner}": f"n{to % len(nodes)}" for _, to, _, owner in pods if to < 4}
    tables = Tables([node(f"n{number}", cpu) for number, cpu in enumerate(nodes)], made)
    here = Stubborn(tables, prefers, low(more="returnBackOff: {longest: 20m}"))
    for _ in range(150):
        here.cycle(every)
    assert [here.cycle(every).names for _ in range(20)] == [[]] * 20


def test_what_is_known_outlives_the_process() -> None:
    here, another = one_stubborn(low()), one_stubborn(low())
    for _ in range(2):
        assert here.cycle(MINUTE).names == another.cycle(MINUTE).names
    kept = msgspec.json.decode(
        msgspec.json.encode(Kept(0.0, {"n1": 1.5}, *here.memory.returns.saved())), type=Kept
    )
    here.memory = Memory()
    here.memory.returns.restore(kept.returns, kept.wishes)
    for _ in range(5 * 60):
        assert here.cycle(MINUTE).names == another.cycle(MINUTE).names
    assert here.memory.returns.saved() == another.memory.returns.saved()


# how long a node has to be hot


def test_a_node_gives_pods_up_once_it_was_hot_often_enough_in_a_row() -> None:
    policy = low(f"{LOW}, anomalyCondition: {{consecutiveAbnormalities: 3}}")
    here = one_stubborn(policy)
    assert [here.cycle(MINUTE).names for _ in range(3)] == [[], [], ["web-1"]]


def test_a_cool_measurement_ends_the_streak_and_the_same_one_counts_once() -> None:
    arguments = (
        "{metrics: {type: metrics_server}, thresholds: {cpu: 30}, targetThresholds: {cpu: 80}, "
        "anomalyCondition: {consecutiveAbnormalities: 2}}"
    )
    policy, memory = profile("LoadAware", arguments, point="balance"), Memory()
    tables = Tables([node("a", 1000), node("b", 1000)], [pod("p", "a")])

    def at(moment: float, cpu: float) -> list[str]:
        usage = Usage({"a": Sample(cpu, 0, moment, 15), "b": Sample(0, 0, moment, 15)})
        return run(policy, tables, usage, memory=memory).names

    assert at(NOW, 900) == at(NOW, 900) == at(NOW + 5, 100) == at(NOW + 10, 900) == []
    assert at(NOW + 15, 900) == ["p"]


# pools


POOLS = """{
  metrics: {type: metrics_server}, nodePools: [
    {name: gpu, nodeSelector: gpu=yes, thresholds: {cpu: 50}, targetThresholds: {cpu: 95}},
    {name: batch, nodeSelector: pool=batch, thresholds: {cpu: 20}, targetThresholds: {cpu: 60}}]REST}"""


def test_pools_have_thresholds_of_their_own_and_are_evened_out_among_themselves() -> None:
    labels = {
        "g1": {"gpu": "yes", "pool": "batch"},
        "g2": {"gpu": "yes"},
        "b1": {"pool": "batch"},
        "b2": {"pool": "batch"},
    }
    nodes = [node(name, 1000, labels=marks) for name, marks in labels.items()]
    tables = Tables(
        [*nodes, node("r1", 1000), node("r2", 1000)],
        [pod(f"on-{name}", name) for name in (*labels, "r1")],
    )
    usage = measured(
        {
            "g1": (900, 0),
            "g2": (100, 0),
            "b1": (700, 0),
            "b2": (100, 0),
            "r1": (990, 0),
            "r2": (0, 0),
        }
    )
    assert run(
        profile("LoadAware", POOLS.replace("REST", ""), point="balance"), tables, usage
    ).names == ["on-b1"]
    rest = POOLS.replace("REST", ", thresholds: {cpu: 10}, targetThresholds: {cpu: 90}")
    assert run(profile("LoadAware", rest, point="balance"), tables, usage).names == [
        "on-b1",
        "on-r1",
    ]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("name: gpu", "name: batch", "nodePools: two have the name 'batch'"),
        ("nodeSelector: gpu=yes, ", "", "nodePools[0] gpu: nodeSelector is missing: the labels of the pool's nodes"),
        ("cpu: 95", "cpu: 195", "nodePools[0] gpu: targetThresholds config is not valid: cpu threshold not in [0, 100] range, it is 195"),
        ("REST", ", anomalyCondition: {consecutiveAbnormalities: 0}, thresholds: {cpu: 1}, targetThresholds: {cpu: 2}",
         "anomalyCondition.consecutiveAbnormalities 0 is below 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_pools_is_said(before: str, after: str, said: str) -> None:
    with pytest.raises(PolicyError) as error:
        profile("LoadAware", POOLS.replace(before, after, 1).replace("REST", ""), point="balance")
    assert f"in profile p: LoadAware: {said}" in error.value.problems


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{first: soon}", "returnBackOff.first 'soon' is no duration, as 90s, 2m or 1h30m are"),
        ("{longest: -1h}", "returnBackOff.longest '-1h' is below 0"),
        ("{forget: 1h}", "returnBackOff.forget: there is no such key; did you mean 'forgetAfter'?"),
    ],
)
def test_what_is_wrong_with_a_back_off_is_said(text: str, said: str) -> None:
    with pytest.raises(PolicyError) as error:
        low(more=f"returnBackOff: {text}")
    assert said in error.value.problems


# what pods ask for


def test_a_limit_holds_for_each_owner() -> None:
    pods = [
        pod(f"{owner}-{number}", "n1", 400, owners=(Owner("ReplicaSet", owner),))
        for owner in ("a", "b")
        for number in range(4)
    ]
    ran = run(low(more="maxNoOfPodsToEvictPerOwner: 1"), Tables([node("n1"), node("n2")], pods))
    assert sorted(one.pod.owners[0].name for one in ran.evictions) == ["a", "b"]
    assert ran.report.evictions[Outcome.PER_OWNER, "LowNodeUtilization", "default", "n1"] == 6


def test_a_pod_runs_for_its_minimum_whoever_says_it() -> None:
    young, hour = {"started": NOW - HOUR}, Wishes(min_runtime=2 * HOUR)
    pods = [
        pod("itself", "n1", 400, wishes=hour, **young),
        pod("its-group", "n1", 400, group="g", **young),
        pod("its-class", "n1", 400, priority_class="steady", **young),
        pod(
            "over-ruled", "n1", 400, priority_class="steady", wishes=Wishes(min_runtime=0), **young
        ),
        pod("done", "n1", 400, wishes=hour, started=NOW - 3 * HOUR),
        pod("boasts", "n1", 400, wishes=Wishes(min_runtime=1e6), started=NOW - 3 * HOUR),
    ]
    tables = Tables([node("n1"), node("n2")], pods)
    tables.wishes_of_groups["default/g"] = tables.wishes_of_classes["steady"] = hour
    policy = profile("PodLifeTime", "{maxPodLifeTimeSeconds: 60}", "{longestMinRuntime: 2h}")
    ran = run(policy, tables)
    assert sorted(ran.names) == ["boasts", "done", "over-ruled"]
    assert ran.report.refused["PodLifeTime", "pod has not had its minimum runtime"] == 3


def test_a_semi_preemptible_gang_does_not_go_as_a_whole() -> None:
    tables = Tables(
        [node("n1"), node("n2")], [pod(f"w{number}", "n1", 400, group="g") for number in range(2)]
    )
    tables.minimum["default/g"] = 2
    policy = profile("PodLifeTime", "{maxPodLifeTimeSeconds: 60}", "{gangPolicy: wholeGroup}")
    assert len(run(policy, tables).names) == 2
    tables.wishes_of_groups["default/g"] = Wishes(semi_preemptible=True)
    assert run(policy, tables).names == []


def test_the_grace_that_a_job_asks_for() -> None:
    asked = wishes_of({"hekla.io/eviction-grace": "90s", "hekla.io/min-runtime": "soon"})
    assert asked == Wishes(grace=90), "what cannot be understood counts as absent"
    assert wishes_of({"hekla.io/eviction-grace": "2h"}).grace == 600
    tables = Tables([node("n1"), node("n2")], [pod("p", "n1", wishes=asked)])
    (eviction,) = run(profile("PodLifeTime", "{maxPodLifeTimeSeconds: 60}"), tables).evictions
    assert eviction.grace == 90
