"""What the table of cards says of all nodes at once is what looking at each node says."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.model.devices import Asker, vgpu
from hekla.engine.model.devices.cardtable import CardTable
from hekla.engine.world import World, policy

MODELS = ["NVIDIA-A100", "NVIDIA-T4", "AMD-MI300"]

used_cards = st.fixed_dictionaries(
    {
        "shares": st.integers(1, 3),
        "memory": st.sampled_from([0, 1000, 1600]),
        "type": st.sampled_from(MODELS),
        "uses": st.lists(
            st.tuples(st.sampled_from([0, 1, 300, 700, 1000]), st.sampled_from([0, 30, 50, 100])),
            max_size=3,
        ),
    }
)
nodes = st.tuples(st.sampled_from(["hami-core", "mps"]), st.lists(used_cards, max_size=4))
asked = st.fixed_dictionaries({
    "number": st.integers(0, 5), "memory": st.sampled_from([0, 1, 300, 1000, 1001]), "percent": st.sampled_from([0, 33, 50, 100]),
    "cores": st.sampled_from([0, 20, 50, 70, 100]),
    "notes": st.sampled_from([
        {}, {vgpu.MODE: "mps"}, {vgpu.MODE: "hami-core"}, {vgpu.USE_TYPE: "t4"}, {vgpu.NO_TYPE: "a100"}, {vgpu.USE_TYPE: "t4,"},
    ]),
})  # fmt: skip


def pod_of(wanted: dict[str, Any]) -> Asker | None:
    here = World(policy(plugins=["gang"]))
    limits = {
        name: str(wanted[key])
        for name, key in (
            (vgpu.NUMBER, "number"),
            (vgpu.MEMORY, "memory"),
            ("volcano.sh/vgpu-memory-percentage", "percent"),
            (vgpu.CORES, "cores"),
        )
        if wanted[key]
    }
    here.job(
        "asks",
        pods=1,
        annotations={},
        spec={"containers": [{"name": "main", "resources": {"limits": limits}}]},
    )
    here.pod(
        "asker",
        job="asks",
        annotations=wanted["notes"],
        spec={"containers": [{"name": "main", "resources": {"limits": limits}}]},
    )
    task = here.state.tasks["default/asker"]
    return Asker(task.pods, task.annotations)


def cards_of(made: tuple[str, list[dict[str, Any]]]) -> vgpu.Cards:
    mode, listed = made
    cards = []
    for at, one in enumerate(listed):
        card = vgpu.Card(f"u{at}", one["shares"], one["memory"], one["type"])
        for number, (memory, cores) in enumerate(one["uses"]):
            card.book(f"pod-{number}", card.uuid, memory, cores, 1, "", frozenset())
        cards.append(card)
    return vgpu.Cards(mode, cards)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.none(), nodes), min_size=1, max_size=6),
    asked,
    st.sampled_from(["binpack", "spread", ""]),
)
def test_the_table_says_what_each_node_says(made, wanted, chosen):
    asker = pod_of(wanted)
    device = vgpu.VirtualGpu(vgpu.Settings(percentage="volcano.sh/vgpu-memory-percentage"))
    if not device.asked(asker.pods):
        return
    table = CardTable()
    there = [None if one is None else cards_of(one) for one in made]
    for row, cards in enumerate(there):
        table.write(row, cards)
    found = device.ask_all(table, np.arange(len(there)), asker, chosen)
    assert found is not None
    for row, cards in enumerate(there):
        if cards is None:
            assert found[0][row] and found[1][row] == 0.0
            continue
        slow = device.fit(cards, asker, chosen)
        assert bool(found[0][row]) == (not slow.refusal)
        assert found[1][row] == (0.0 if slow.refusal else slow.score)


def test_a_row_that_is_written_again_forgets_what_it_was():
    table = CardTable()
    table.write(
        0,
        cards_of(("hami-core", [{"shares": 2, "memory": 1000, "type": MODELS[0], "uses": []}] * 3)),
    )
    table.write(
        0, cards_of(("mps", [{"shares": 2, "memory": 1000, "type": MODELS[0], "uses": []}]))
    )
    asker = pod_of({"number": 2, "memory": 10, "percent": 0, "cores": 0, "notes": {}})
    found = vgpu.VirtualGpu().ask_all(table, np.array([0]), asker, "")
    assert found is not None and not found[0][0]
    table.write(0, None)
    found = vgpu.VirtualGpu().ask_all(table, np.array([0]), asker, "")
    assert found is not None and found[0][0]
