"""Over random nodes with shared cards: no card is given more than it has, a gang is whole or
absent, cards are given back."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.model.devices.vgpu import IDS, decoded
from hekla.engine.placement.placer import placer_of
from hekla.engine.world import World, policy

SHARES, MEMORY = 3, 1000

asks = st.fixed_dictionaries(
    {
        "pods": st.integers(1, 3),
        "number": st.integers(1, 2),
        "memory": st.sampled_from([0, 300, 500, 1000]),
        "cores": st.sampled_from([0, 30, 50, 100]),
        "spread": st.booleans(),
        "rule": st.booleans(),
        "containers": st.integers(1, 2),
    }
)


def cluster(sizes: list[int], chosen: str) -> World:
    arguments = {
        "deviceshare.VGPUEnable": True,
        "deviceshare.SchedulePolicy": chosen,
        "deviceshare.ScheduleWeight": 3,
        "deviceshare.GPUExclusiveRules": [{"team": "ml"}],
    }
    here = World(
        policy(
            plugins=["gang", "predicates", {"name": "deviceshare", "arguments": arguments}],
            actions="enqueue, allocate",
        )
    )
    for number, size in enumerate(sizes):
        cards = "".join(
            f"n{number}-c{card},{SHARES},{MEMORY},NVIDIA-A100,true,hami-core:"
            for card in range(size)
        )
        room = {
            "volcano.sh/vgpu-number": 100,
            "volcano.sh/vgpu-memory": 10**6,
            "volcano.sh/vgpu-cores": 10**4,
        }
        here.nodes(
            f"n{number}",
            cpu=64,
            annotations={"volcano.sh/node-vgpu-register": cards} if cards else {},
            **room,
        )
    return here


def add(here: World, name: str, ask: dict[str, Any]) -> None:
    limits = {"volcano.sh/vgpu-number": str(ask["number"])}
    limits |= {f"volcano.sh/vgpu-{key}": str(ask[key]) for key in ("memory", "cores") if ask[key]}
    containers = [
        {"name": str(at), "resources": {"limits": limits, "requests": limits}}
        for at in range(ask["containers"])
    ]
    notes = {"volcano.sh/vgpu-podgroup-policy": "spread"} if ask["spread"] else {}
    labels = {"team": "ml"} if ask["rule"] else {}
    here.job(name, pods=ask["pods"], spec={"containers": containers}, annotations={}, labels=labels)
    if notes:
        for number in range(ask["pods"]):
            here.pod(
                f"{name}-task-{number}",
                job=name,
                spec={"containers": containers},
                annotations=notes,
                labels=labels,
            )


def holders(here: World) -> dict[str, list[tuple[str, int, int]]]:
    """Card -> what pods with a node hold of it."""
    found: dict[str, list[tuple[str, int, int]]] = {}
    for task in here.state.tasks.values():
        if task.row >= 0 and task.status.value not in ("Succeeded", "Failed"):
            for container in decoded(task.annotations.get(IDS, "")):
                for record in container:
                    found.setdefault(record.identity, []).append(
                        (task.key, record.memory, record.cores)
                    )
    return found


def check(here: World) -> None:
    for card, held in holders(here).items():
        pods: dict[str, list[tuple[int, int]]] = {}
        for pod, memory, cores in held:
            pods.setdefault(pod, []).append((memory, cores))
        assert len(held) <= SHARES, card  # each container takes a share
        assert (
            sum(memory for _, memory, _ in held) <= MEMORY
            and sum(cores for _, _, cores in held) <= 100
        ), card
        rules = [here.state.tasks[pod].labels.labels.get("team") == "ml" for pod in pods]
        assert sum(rules) <= 1, card
    for job in here.state.jobs.values():
        placed = sum(task.row >= 0 for task in job.tasks.values())
        assert placed in (0, len(job.tasks)), job.key


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.sampled_from(["binpack", "spread", ""]),
    st.lists(asks, min_size=1, max_size=6),
    st.lists(st.integers(0, 5), max_size=3),
)
def test_no_card_is_given_more_than_it_has(sizes, chosen, wanted, ends):
    here = cluster(sizes, chosen)
    for number, ask in enumerate(wanted):
        add(here, f"j{number}", ask)
        here.run()
        check(here)
        if number % 2:
            here.settle()
    here.settle()
    for end in ends:
        here.end(f"j{end}")
        here.run()
        check(here)
        here.settle()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.lists(asks, min_size=2, max_size=4))
def test_undoing_a_placement_gives_every_card_back(sizes, wanted):
    here = cluster(sizes, "binpack")
    for number, ask in enumerate(wanted[:-1]):
        add(here, f"j{number}", ask)
    here.run()
    here.settle()
    add(here, "last", wanted[-1])
    session = open_session(here.state, hooks_of(here.state, here.policy), here.now)
    before, notes = (
        holders(here),
        {key: dict(task.annotations) for key, task in here.state.tasks.items()},
    )
    statement = session.statement()
    for task in here.state.jobs["default/last"].tasks.values():
        rows = placer_of(session).filters.candidates(session, task).idle
        if len(rows):
            statement.allocate(task, int(rows[-1]))
    statement.discard()
    assert (
        holders(here) == before
        and {key: dict(task.annotations) for key, task in here.state.tasks.items()} == notes
    )
