"""What holds in every cycle, whatever the cluster: gangs, room, limits and targets."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hekla.descheduler.classification import completed, loads
from hekla.descheduler.fit import admits
from hekla.descheduler.tables import CPU, PODS, Pod, Tables, Taint
from tests.descheduler.stories import NOW, measured, node, pod, profile, run, selecting

PER_NODE, PER_NAMESPACE, TOTAL = 3, 5, 9
LIMITS = f"""
maxNoOfPodsToEvictPerNode: {PER_NODE}
maxNoOfPodsToEvictPerNamespace: {PER_NAMESPACE}
maxNoOfPodsToEvictTotal: {TOTAL}"""

NODES = st.lists(
    st.builds(
        lambda cpu, slots, cordoned, tainted, zone: (cpu, slots, cordoned, tainted, zone),
        st.sampled_from([1000, 2000, 4000]),
        st.integers(1, 6),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["a", "b"]),
    ),
    min_size=2,
    max_size=6,
)
PODS_OF = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from([0, 100, 400, 900]),
        st.sampled_from(["", "red", "blue"]),
        st.booleans(),
        st.sampled_from(["x", "y"]),
        st.integers(0, 1500),
    ),
    max_size=30,
)
MINIMA = st.tuples(st.integers(0, 6), st.integers(0, 6))


def made(
    nodes: list[tuple[int, int, bool, bool, str]],
    pods: list[tuple[int, int, str, bool, str, int]],
    minima: tuple[int, int],
) -> Tables:
    tables = Tables(
        [
            node(
                f"n{number}",
                cpu,
                pods=slots,
                unschedulable=cordoned,
                taints=(Taint("t", "", "NoSchedule"),) if tainted else (),
                labels={"zone": zone},
            )
            for number, (cpu, slots, cordoned, tainted, zone) in enumerate(nodes)
        ],
        [
            pod(
                f"p{number}",
                f"n{at % len(nodes)}",
                cpu,
                namespace=namespace,
                group=group,
                placement=selecting(zone="a") if pinned else selecting(),
                created=NOW - 1000 - number,
            )
            for number, (at, cpu, group, pinned, namespace, _) in enumerate(pods)
        ],
    )
    for namespace in ("x", "y"):
        tables.minimum[f"{namespace}/red"], tables.minimum[f"{namespace}/blue"] = minima
    return tables


def placed(tables: Tables, evicted: list[Pod]) -> bool:
    """Whether all evicted pods can stand on nodes other than their own, all at once."""
    free = {
        one.name: (
            one.allocatable[CPU] - tables.requested.get(one.name, {}).get(CPU, 0.0),
            one.allocatable[PODS] - tables.requested.get(one.name, {}).get(PODS, 0.0),
        )
        for one in tables.nodes.values()
    }
    for one in evicted:
        cpu, slots = free[one.node]
        free[one.node] = cpu + one.requests.get(CPU, 0.0), slots + 1

    def place(rest: list[Pod]) -> bool:
        if not rest:
            return True
        first, *others = rest
        for other in tables.nodes.values():
            cpu, slots = free[other.name]
            asked = first.requests.get(CPU, 0.0)
            if other.name == first.node or not admits(first.placement, other):
                continue
            if (asked and cpu < asked) or slots < 1:
                continue
            free[other.name] = cpu - asked, slots - 1
            if place(others):
                return True
            free[other.name] = cpu, slots
        return False

    return place(evicted)


@given(NODES, PODS_OF, MINIMA)
def test_gangs_room_and_limits(
    nodes: list[tuple[int, int, bool, bool, str]],
    pods: list[tuple[int, int, str, bool, str, int]],
    minima: tuple[int, int],
) -> None:
    tables = made(nodes, pods, minima)
    policy = profile("PodLifeTime", "{maxPodLifeTimeSeconds: 60}", "{nodeFit: true}", more=LIMITS)
    evicted = [one.pod for one in run(policy, tables).evictions]
    for key, minimum in tables.minimum.items():
        members = tables.members.get(key, {})
        gone = sum(one.group_key == key for one in evicted)
        assert not gone or minimum <= 1 or len(members) - gone >= minimum
    assert placed(tables, evicted)
    assert len(evicted) == len({one.key for one in evicted}) <= TOTAL
    assert all(count <= PER_NODE for count in Counter(one.node for one in evicted).values())
    assert all(
        count <= PER_NAMESPACE for count in Counter(one.namespace for one in evicted).values()
    )


@given(NODES, PODS_OF, MINIMA)
def test_a_gang_goes_as_a_whole_or_keeps_its_minimum(
    nodes: list[tuple[int, int, bool, bool, str]],
    pods: list[tuple[int, int, str, bool, str, int]],
    minima: tuple[int, int],
) -> None:
    tables = made(nodes, pods, minima)
    evictor = "{nodeFit: true, gangPolicy: wholeGroup}"
    ran = run(profile("PodLifeTime", "{maxPodLifeTimeSeconds: 60}", evictor, more=LIMITS), tables)
    evicted = [one.pod for one in ran.evictions]
    for key, minimum in tables.minimum.items():
        members = tables.members.get(key, {})
        left = len(members) - sum(one.group_key == key for one in evicted)
        assert left in (0, len(members)) or minimum <= 1 or left >= minimum
    assert placed(tables, evicted)
    assert len(evicted) == len({one.key for one in evicted}) <= TOTAL
    assert all(count <= PER_NODE for count in Counter(one.node for one in evicted).values())


@given(NODES, PODS_OF, st.integers(0, 50), st.integers(50, 100))
def test_load_aware_takes_from_hot_nodes_alone_and_only_until_they_are_not(
    nodes: list[tuple[int, int, bool, bool, str]],
    pods: list[tuple[int, int, str, bool, str, int]],
    low: int,
    high: int,
) -> None:
    tables = made(nodes, pods, (0, 0))
    used = {f"n{number}": 0.0 for number in range(len(nodes))}
    for at, *_, cpu in pods:
        used[f"n{at % len(nodes)}"] += cpu
    usage = measured({name: (cpu, 0.0) for name, cpu in used.items()})
    samples = {
        f"{one[4]}/p{number}": usage.nodes["n0"]._replace(cpu=float(one[5]))
        for number, one in enumerate(pods)
    }
    arguments = f"{{metrics: {{type: metrics_server}}, thresholds: {{cpu: {low}}}, targetThresholds: {{cpu: {high}}}}}"
    ran = run(
        profile("LoadAware", arguments, point="balance"), tables, type(usage)(usage.nodes, samples)
    )
    limits = {
        load.node.name: load.high[CPU]
        for load in loads(
            [(one, {}) for one in tables.nodes.values()], *completed({CPU: low}, {CPU: high})
        )
    }
    slots = {one.name: one.allocatable[PODS] for one in tables.nodes.values()}
    left = Counter(one.node for one in tables.pods.values())
    for eviction in ran.evictions:
        one = eviction.pod
        assert used[one.node] > limits[one.node] or left[one.node] > slots[one.node]
        used[one.node] -= samples[one.key].cpu
        left[one.node] -= 1
