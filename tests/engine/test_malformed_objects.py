"""Objects as no API server would give them out: any one of them, or several, and the cycle goes on
and places who is well."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hekla.engine.world import World, policy
from tests.engine.malformed import OBJECTS

TYPED = {
    "Pod": "pod",
    "Node": "node",
    "PodGroup": "pod_group",
    "Queue": "queue",
    "PriorityClass": "priority_class",
}
WORDS = [
    "",
    "x",
    "-1",
    "1e999",
    "9" * 400,
    "1Ei",
    "NaN",
    "1.5.5",
    "[",
    "a/b",
    "2026-99-99T00:00:00Z",
    "Always",
    "0.0.0.0",
    "\x00",
]
VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 2**31, 2**63, 10**30, -(10**30), 1.5, -0.0]),
    st.sampled_from(WORDS),
    st.sampled_from([[], {}, [None], [[]], {"": None}, {"a": {"b": 1}}]),
)
PLUGINS = [
    "priority", "gang", "conformance", "sla", "drf", "predicates", "nodeorder", "binpack", "numa-aware", "network-topology-aware",
    "task-topology", "resourcequota", "pdb", "overcommit", "cdp", "usage",
    {"name": "deviceshare", "arguments": {"deviceshare.VGPUEnable": True, "deviceshare.AscendHAMiVNPUEnable": True}},
    {"name": "tdm", "arguments": {"tdm.revocable-zone.rz1": "00:00-23:59"}},
]  # fmt: skip
ACTIONS = "enqueue, allocate, backfill, preempt, reclaim, gangpreempt, gangreclaim, shuffle"


def places(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a tree."""
    yield at
    listed = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for name, value in listed:
        yield from places(value, (*at, name))


def spoiled(tree: Any, at: tuple[Any, ...], value: Any) -> Any:
    """The tree with another value in one place."""
    tree = copy.deepcopy(tree)
    here = tree
    for name in at[:-1]:
        here = here[name]
    here[at[-1]] = copy.deepcopy(value)
    return tree


def feed(here: World, kind: str, tree: Any) -> None:
    if kind in TYPED:
        getattr(here.state, f"upsert_{TYPED[kind]}")(tree)
    else:
        here.state.upsert_other(kind, tree)


@pytest.mark.parametrize("share", ["proportion", "capacity"])
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_objects_say_the_cycle_goes_on(share: str, data: st.DataObject) -> None:
    here = World(policy(plugins=[*PLUGINS, share], actions=ACTIONS))
    here.nodes("good", cpu=64)
    bad = set(data.draw(st.lists(st.sampled_from(sorted(OBJECTS)), min_size=1, max_size=4)))
    for kind, tree in OBJECTS.items():
        if kind in bad:
            where = [at for at in places(tree) if at and at != ("metadata",)]
            tree = spoiled(tree, data.draw(st.sampled_from(where)), data.draw(VALUE))
        feed(here, kind, tree)
    here.job("fine", cpu=1)
    for _ in range(2):
        decisions = here.run()
        assert [one for one in decisions.problems if "broke off" in one] == []
        for bind in decisions.binds:
            here.state.bind_failed(bind.pod)


def test_a_plugin_that_cannot_be_opened_decides_nothing_and_stops_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from hekla.engine.plugins.placement.tasktopology import TaskTopology

    def broken(self: TaskTopology, session: object) -> None:
        raise KeyError("nobody thought of this")

    here = World(policy(plugins=["gang", "predicates", "task-topology"], actions="allocate"))
    here.nodes("n1", cpu=4)
    here.job("a", cpu=1)
    with monkeypatch.context() as patch:
        patch.setattr(TaskTopology, "open", broken)
        decisions = here.run()
        assert decisions.binds == [] and any(
            "opening of plugin task-topology broke off" in one for one in decisions.problems
        )
    here.job("b", cpu=1)
    assert len(here.run().binds) == 2
