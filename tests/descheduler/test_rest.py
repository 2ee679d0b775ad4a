"""Descheduling comes to rest: with a scheduler that minds usage, nothing is moved twice."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hekla.descheduler.tables import Pod, Tables
from tests.descheduler.stories import measured, node, pod, profile, run

CORES = 10000.0
POLICY = profile(
    "LoadAware",
    "{metrics: {type: metrics_server}, thresholds: {cpu: 40}, targetThresholds: {cpu: 70}}",
    "{nodeFit: true}",
    "balance",
)


@given(st.lists(st.lists(st.integers(100, 4000), max_size=5), min_size=2, max_size=8))
def test_nothing_is_moved_twice(clusters: list[list[int]]) -> None:
    used: dict[str, float] = {}
    pods: list[Pod] = []
    for number, uses in enumerate(clusters):
        for use in uses:
            name = f"p{len(pods)}"
            used[name] = float(use)
            pods.append(pod(name, f"n{number}", 100))
    tables = Tables([node(f"n{number}", CORES, pods=50) for number in range(len(clusters))], pods)

    def on(name: str) -> float:
        return sum(used[one.name] for one in tables.on_node.get(name, {}).values())

    moved: set[str] = set()
    for _ in range(len(clusters) + 2):
        usage = measured(
            {name: (on(name), 0) for name in tables.nodes},
            {name: (use, 0) for name, use in used.items()},
        )
        gone = [eviction.pod for eviction in run(POLICY, tables, usage).evictions]
        assert moved.isdisjoint(one.name for one in gone)
        moved.update(one.name for one in gone)
        for one in gone:
            tables.drop_pod(one.key)
        for one in gone:
            tables.put_pod(replace(one, node=min(tables.nodes, key=on)))
        if not gone:
            return
    raise AssertionError("it does not come to rest")
