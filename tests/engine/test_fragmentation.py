"""Fragmentation: the measure against a plain one, scores that are kept against fresh ones, and where
pods and their shares of cards go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.policy import PolicyError
from hekla.engine.model.fragmentation.measure import (
    Need,
    Places,
    Shapes,
    expected,
    gradient,
    unusable,
)
from hekla.engine.model.fragmentation.mix import HALF, ShapeMix
from hekla.engine.model.nodeview import NodeView
from hekla.engine.plugins.placement.fragmentation import Fragmentation
from hekla.engine.world import World, policy

UNITS = 1000
NUMBER, MEMORY, CORES = "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"

# ------------------------------------------------------------------------------------- the textbook


def asked_of(need: Need, card: int) -> int:
    return need.share or card * need.percent // 100


def one_shape(need: Need, cpu: float, memory: float, cards: list[int], card: int) -> list[float]:
    """Cpu, memory and cards that one shape leaves: by the next pod and by as many as have room."""
    asked = asked_of(need, card)
    wide = [left for left in cards if left >= asked] if need.number else []
    fits = cpu >= need.cpu and memory >= need.memory and len(wide) >= need.number
    limits = [room / size for room, size in ((cpu, need.cpu), (memory, need.memory)) if size]
    if need.number:
        limits.append(sum(left // asked for left in cards) // need.number)
    many = min(limits, default=0.0)
    free = sum(cards)
    return [
        (0 if fits else cpu) + cpu - many * need.cpu,
        (0 if fits else memory) + memory - many * need.memory,
        ((free - sum(wide) if need.number and fits else free) + free - many * need.number * asked)
        / card,
    ]


def textbook(
    mix: list[tuple[Need, float]], cpu: float, memory: float, cards: list[int], card: int
) -> float:
    """Expected fragmentation of one node, a unit of everything counting one."""
    total = 0.0
    for need, popularity in mix:
        left = one_shape(need, cpu, memory, cards, card)
        for amount, asked in zip(left, (need.cpu, need.memory, need.number)):
            total += popularity * amount if asked else 0.0
    return total


def textbook_rise(
    mix: list[tuple[Need, float]],
    need: Need,
    cpu: float,
    memory: float,
    cards: list[int],
    card: int,
) -> float:
    """On the best card, or on the fullest that take a pod of several."""
    asked = asked_of(need, card)
    wide = [number for number, left in enumerate(cards) if left >= asked]
    if need.number and len(wide) < need.number:
        return float("inf")
    ways: list[list[int]] = [[number] for number in wide]
    if need.number != 1 or asked == card:
        ways = [sorted(wide, key=lambda number: cards[number])[: need.number]]
    before = textbook(mix, cpu, memory, cards, card)
    rises = []
    for way in ways:
        then = [left - asked * (number in way) for number, left in enumerate(cards)]
        rises.append(textbook(mix, cpu - need.cpu, memory - need.memory, then, card) - before)
    return min(rises)


needs = st.builds(
    lambda cpu, memory, number, share: Need(cpu, memory, number, share if number == 1 else 0),
    st.sampled_from([0.0, 1.0, 3.0, 4.0]),
    st.sampled_from([0.0, 2.0, 5.0]),
    st.sampled_from([0, 1, 1, 2, 4]),
    st.sampled_from([0, 300, 470, 500, 810]),
)
mixes = st.lists(st.tuples(needs, st.sampled_from([0.1, 0.25, 0.5])), min_size=1, max_size=5)
nodes = st.lists(
    st.tuples(
        st.integers(4, 12).map(float),
        st.integers(5, 20).map(float),
        st.lists(st.sampled_from([0, 190, 300, 530, 810, 1000]), min_size=4, max_size=4),
    ),
    min_size=1,
    max_size=4,
)  # fmt: skip


def tables(
    mix: list[tuple[Need, float]], rows: list[tuple[float, float, list[int]]]
) -> tuple[Shapes, Places]:
    shapes = Shapes([need for need, _ in mix], [popularity for _, popularity in mix])
    cpu, memory, cards = (np.array(one, dtype=float) for one in zip(*rows))
    count = len(rows)
    return shapes, Places(cpu, memory, cards.T.copy(), np.full(count, 1000.0), np.zeros(count))


@given(mixes, nodes, needs)
def test_the_arrays_say_what_the_textbook_says(
    mix: list[tuple[Need, float]], rows: list[tuple[float, float, list[int]]], need: Need
) -> None:
    shapes, places = tables(mix, rows)
    found = expected(shapes, places, np.ones(3))
    assert found == pytest.approx([textbook(mix, *row, UNITS) for row in rows])
    rises = gradient(shapes, places, need, np.ones(3))
    assert rises == pytest.approx([textbook_rise(mix, need, *row, UNITS) for row in rows])


def test_the_definition_of_the_paper() -> None:
    """Two cards, one with 0.3 left: for a pod of half a card the 0.3 are a fragment; for one of two
    cards, or of more cpu than there is, all 1.3 are."""
    mix = [(Need(1, 0, 1, 500), 1.0), (Need(1, 0, 2), 1.0), (Need(9, 0, 1, 500), 1.0)]
    shapes, places = tables(mix, [(4, 0, [1000, 300])])
    both = unusable(shapes, places)[2, :, 0]
    filled = unusable(shapes, places, filled=True)[2, :, 0]
    assert filled == pytest.approx([0.3, 1.3, 1.3])
    assert both - unusable_in_fractions(places, mix) == pytest.approx([0.3, 1.3, 1.3])


def unusable_in_fractions(places: Places, mix: list[tuple[Need, float]]) -> list[float]:
    free = float(np.maximum(places.cards, 0).sum()) / UNITS
    cpu = float(places.cpu[0])
    pieces = [min(cpu / 1, 2), 0, min(cpu / 9, 2)]
    return [free - count * asked for count, asked in zip(pieces, (0.5, 2.0, 0.5))]


# -------------------------------------------------------------------------------------- the plugin


def sharing(**arguments: Any) -> list[Any]:
    share = {"deviceshare.VGPUEnable": True, "deviceshare.SchedulePolicy": "binpack"}
    return [
        "gang",
        "predicates",
        {"name": "deviceshare", "arguments": share},
        {"name": "fragmentation", "arguments": arguments},
    ]


def gpu_node(here: World, name: str, cards: int, cpu: int = 32) -> None:
    listed = "".join(
        f"{name}-{card},10,{UNITS},NVIDIA-A100,true,hami-core:" for card in range(cards)
    )
    room = {NUMBER: 10 * cards, MEMORY: UNITS * cards, CORES: 100 * cards}
    here.nodes(name, cpu=cpu, annotations={"volcano.sh/node-vgpu-register": listed}, **room)


def gpus(number: int, share: int = UNITS) -> dict[str, Any]:
    """Of a pod: it asks in its limits, as device plugins want it."""
    amounts = {NUMBER: str(number), MEMORY: str(share)}
    main = {"name": "main", "resources": {"requests": {"cpu": "1", **amounts}, "limits": amounts}}
    return {"spec": {"containers": [main]}}


def card_of(here: World, job: str) -> str:
    return here.pods[f"default/{job}-task-0"]["metadata"]["annotations"][
        "volcano.sh/vgpu-ids-new"
    ].partition(",")[0]


HALVES = [
    {"requests": {"cpu": 1, NUMBER: 1, MEMORY: 500}, "weight": 3},
    {"requests": {"cpu": 1, NUMBER: 1, MEMORY: UNITS}},
]


def test_a_share_goes_where_it_breaks_no_card() -> None:
    here = World(policy(plugins=sharing(**{"fragmentation.mix": HALVES})))
    gpu_node(here, "whole", 2)
    gpu_node(here, "begun", 2)
    here.job("first", **gpus(1, 500))
    here.run()
    here.settle()
    began = here.decisions.nodes_of("first")
    here.job("second", **gpus(1, 500))
    here.run()
    here.settle()
    assert here.decisions.nodes_of("second") == began
    assert card_of(here, "second") == card_of(here, "first")


def test_a_share_comes_from_the_card_whose_rest_stays_of_use() -> None:
    """0.3 fit a card with 0.8 left, where half a card stays, and one with 0.6 left, where 0.3 would
    be lost; binpack alone would take the fuller."""
    here = World(policy(plugins=sharing(**{"fragmentation.mix": HALVES})))
    gpu_node(here, "n", 2)
    for name, share in (("a", 400), ("b", 200), ("c", 300)):
        here.job(name, **gpus(1, share))
        if name == "b":
            here.pods["default/b-task-0"]["metadata"]["annotations"][
                "volcano.sh/vgpu-use-gpuuuid"
            ] = "n-1" if card_of(here, "a") == "n-0" else "n-0"
            here.state.upsert_pod(here.pods["default/b-task-0"])
        here.run()
        here.settle()
    assert card_of(here, "a") != card_of(here, "b")
    assert card_of(here, "c") == card_of(here, "b")


def test_cpu_alone_keeps_room_for_the_large() -> None:
    """Without cards the same holds of cpu: a small pod goes where no large one would fit anyway."""
    mix = [{"requests": {"cpu": 8}}, {"requests": {"cpu": 1}}]
    here = World(
        policy(
            plugins=[
                "predicates",
                {"name": "fragmentation", "arguments": {"fragmentation.mix": mix}},
            ]
        )
    )
    here.nodes("empty", cpu=8)
    here.nodes("odd", cpu=11)
    here.job("small", cpu=1)
    assert here.run().nodes_of("small") == {"odd"}


def test_a_cluster_that_has_never_heard_of_cards() -> None:
    here = World(policy(plugins=["predicates", {"name": "fragmentation"}]))
    here.nodes("n1", "n2", cpu=8, **{"ephemeral-storage": "10Gi"})
    here.job("a", cpu=1)
    assert here.run().nodes_of("a")
    session = open_session(here.state, hooks_of(here.state, here.policy), here.now)
    free, _ = session.hooks("fragmentation")[0].lost(np.arange(2))
    assert free[0].sum() == 15_000


def test_many_at_once_go_where_one_after_another_would() -> None:
    placed = []
    for jobs, pods in ((1, 9), (9, 1)):
        here = World(policy(plugins=["gang", "predicates", "fragmentation"]))
        here.nodes("a", "b", cpu=8)
        here.nodes("c", cpu=5)
        here.job("seen", pods=2, cpu=3, on=["a", "b"], phase="Running")
        for number in range(jobs):
            here.job(f"j{number}", pods=pods, cpu=1)
        placed.append(sorted(one.node for one in here.run().binds))
    assert placed[0] == placed[1]
    assert len(placed[0]) == 9


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 1, 1, 2]), st.sampled_from([190, 300, 470, 810]), st.booleans()
        ),
        min_size=1,
        max_size=12,
    )
)
def test_scores_that_are_kept_are_as_fresh_ones(asks: list[tuple[int, int, bool]]) -> None:
    here = World(policy(plugins=sharing()))
    for number in range(3):
        gpu_node(here, f"n{number}", number + 1, cpu=6)
    for number, (cards, share, ends) in enumerate(asks):
        pod = gpus(cards, share if cards == 1 else UNITS) if cards else {"cpu": 2}
        here.job(f"j{number}", **pod)
        here.run()
        here.settle()
        if ends:
            here.end(f"j{number}")
    session = open_session(here.state, hooks_of(here.state, here.policy), here.now)
    (kept,) = (one for one in session.hooks.plugins if isinstance(one, Fragmentation))
    view = NodeView(here.state.nodes)
    for task in here.state.tasks.values():
        known = kept._score(task.pods, view)
        assert (known == kept._rated(kept.need(task.pods), view)).all()


def test_one_way_to_ask_for_a_whole_card_is_as_good_as_another() -> None:
    """A node with cards that are not shared: as many whole ones as are free."""
    here = World(policy(plugins=["gang", "predicates", "fragmentation"]))
    here.nodes("four", cpu=32, gpu=4)
    here.nodes("two", cpu=32, gpu=2)
    here.job("seen", pods=1, cpu=1, gpu=4, phase="Pending")
    here.job("one", cpu=1, gpu=1)
    assert here.run("allocate").nodes_of("one") == {"two"}


def test_a_shape_that_may_not_go_somewhere_counts_what_is_there_as_lost() -> None:
    mixed: dict[str, Any] = {"nodeSelector": {"model": "a"}}
    here = World(policy(plugins=["gang", "predicates", "fragmentation"]))
    here.nodes("a", cpu=8, labels={"model": "a"})
    here.nodes("b", cpu=8, labels={"model": "b"})
    here.job("seen", pods=3, cpu=4, phase="Pending", spec=mixed)
    here.job("free", cpu=1)
    assert here.run("allocate").nodes_of("free") == {"b"}


# ----------------------------------------------------------------------------------------- the mix


def classes(here: World, *amounts: int) -> list[Any]:
    for cpu in amounts:
        here.job(f"c{cpu}", cpu=cpu)
    return [here.state.tasks[f"default/c{cpu}-task-0"].pods for cpu in amounts]


def test_the_mix_forgets_by_half() -> None:
    small, large = classes(World(policy(plugins=["gang"])), 1, 2)
    mix = ShapeMix()
    for _ in range(HALF):
        mix.came(small)
    for _ in range(HALF):
        mix.came(large)
    found = {one.pods: one.popularity for one in mix.popular()}
    assert found[large] == pytest.approx(2 * found[small])


def test_the_mix_is_of_pods_that_exist_and_of_those_that_come() -> None:
    here = World(policy(plugins=["gang", "predicates", "fragmentation"]))
    here.nodes("n", cpu=8)
    here.job("old", pods=3, cpu=1, on=["n", "n", "n"], phase="Running")
    here.run()
    here.job("new", cpu=2)
    here.end("old")
    mix = here.state.pods.mix
    assert mix is not None
    assert [round(one.popularity, 3) for one in mix.popular()] == [0.75, 0.25]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"fragmentation.weight": -1}, "fragmentation.weight = -1: a weight is 0 or more"),
        (
            {"fragmentation.mix": [{"requests": {"cpu": "lots"}}]},
            "fragmentation.mix[0].requests",
        ),
        (
            {"fragmentation.mix": [{"requests": {"cpu": 1}, "weight": 0}]},
            "fragmentation.mix[0].weight = 0",
        ),
    ],
)
def test_arguments_that_make_no_sense(arguments: Any, said: str) -> None:
    with pytest.raises(PolicyError) as error:
        policy(plugins=[{"name": "fragmentation", "arguments": arguments}])
    assert said in str(error.value)
