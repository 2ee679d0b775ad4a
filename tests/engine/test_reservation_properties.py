"""Windows are kept in every cluster: no pod of others is on a reserved node while its window is open,
nobody is evicted where walltimes are true, and owners start as the window opens."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from hekla.api.text.times import stamp
from hekla.engine.world import World, policy

PLUGINS = ["priority", "gang", "predicates", "nodeorder", "binpack"]
WALLTIME = "hekla.io/walltime"
MINUTE = 60

JOBS = st.lists(
    st.tuples(
        st.integers(0, 25),  # the minute in which it comes
        st.integers(1, 3),  # pods
        st.integers(1, 4),  # cpu of each
        st.one_of(st.none(), st.integers(1, 12)),  # minutes of its walltime
        st.integers(1, 12),  # minutes that it takes, its walltime at most
        st.sampled_from(["default", "physics"]),
    ),
    max_size=10,
)


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(["", "strict", "easy", "conservative"]),
    nodes=st.integers(1, 4),
    opens=st.integers(1, 15),
    length=st.integers(1, 10),
    again=st.booleans(),
    owned=st.booleans(),
    counted=st.booleans(),
    jobs=JOBS,
)
def test_windows_are_kept(
    mode: str,
    nodes: int,
    opens: int,
    length: int,
    again: bool,
    owned: bool,
    counted: bool,
    jobs: list[tuple[int, int, int, int | None, int, str]],
) -> None:
    begin = 1_000_020.0  # a whole minute, as schedules have them
    world = World(
        policy(plugins=PLUGINS, configurations=[{"name": "backfill", "arguments": {"mode": mode}}]),
        now=begin,
    )
    world.tells_starts = True
    world.queue("physics")
    world.nodes(*(f"n{number}" for number in range(nodes)), cpu=4)
    some = max(nodes // 2, 1)
    which = {"count": some} if counted else {"names": [f"n{number}" for number in range(some)]}
    window: dict[str, str] = {"start": stamp(begin + opens * MINUTE), "duration": f"{length}m"}
    if again:
        window["schedule"] = "*/15 * * * *"
    world.state.upsert_other(
        "Reservation",
        {
            "metadata": {"name": "r", "uid": "r", "creationTimestamp": stamp(begin)},
            "spec": {
                "nodes": which,
                "window": window,
                "owners": {"queues": ["physics"]} if owned else {},
            },
        },
    )
    if owned:
        # A gang that needs every node of the reservation, and names it.
        world.job(
            "gang",
            pods=some,
            cpu=4,
            queue="physics",
            annotations={"hekla.io/reservation": "r", WALLTIME: "1m"},
        )
        gang_first = world.state.jobs["default/gang"]
    ends: dict[str, float] = {}
    series = {
        f"j{number}": (came, pods, cpu, wall, took if wall is None else min(took, wall), queue)
        for number, (came, pods, cpu, wall, took, queue) in enumerate(jobs)
    }
    started: float | None = None
    opened: float | None = None
    for minute in range(45):
        world.now = begin + minute * MINUTE
        for name in [name for name, end in ends.items() if end <= world.now]:
            del ends[name]
            world.end(name)
        for name, (came, pods, cpu, wall, _, queue) in series.items():
            if came == minute:
                # Owners' jobs would be in each other's way: here only the gang is one of theirs.
                whose = "default" if owned else queue
                notes = {} if wall is None else {WALLTIME: f"{wall}m"}
                world.job(name, pods=pods, cpu=cpu, queue=whose, annotations=notes)
        for _ in range(3):
            decisions = world.run()
            assert not decisions.evictions
            assert not decisions.problems
            world.settle()
            for bind in decisions.binds:
                name = bind.job.partition("/")[2]
                took = 1 if name == "gang" else series[name][4]
                ends.setdefault(name, world.now + took * MINUTE)
                if name == "gang" and started is None:
                    started = world.now
        one = world.state.reservations.by_name["r"]
        if one.is_open(world.now):
            opened = world.now if opened is None else opened
            for row in one.rows.tolist():
                for task in world.state.nodes.tasks[row].values():
                    assert task.job is not None
                    assert owned and task.job is gang_first, (minute, task)
    if owned and mode != "strict":  # where nobody passes whoever waits, not even an owner
        assert started == opened


@settings(max_examples=60, deadline=None)
@given(
    first=st.integers(0, 500),
    length=st.integers(1, 59),
    other=st.integers(0, 500),
    lasting=st.integers(1, 200),
    at=st.integers(0, 1000),
)
def test_two_series_clash_where_a_minute_by_minute_search_says_so(
    first: int, length: int, other: int, lasting: int, at: int
) -> None:
    from hekla.api.text.windows import read_windows

    hourly = read_windows(
        {"schedule": "30 * * * *", "duration": f"{length}m", "start": stamp(first * MINUTE)}
    )
    once = read_windows({"start": stamp(other * MINUTE), "duration": f"{lasting}m"})

    def is_open(minute: int) -> bool:
        return any(minute - back >= first and (minute - back) % 60 == 30 for back in range(length))

    both = [m for m in range(max(first, other), other + lasting) if is_open(m)]
    clash = hourly.clash(once, 0.0)
    assert (clash.start if clash else math.inf) == (both[0] * MINUTE if both else math.inf)
    assert once.clash(hourly, 0.0) == clash
    found = hourly.next(at * MINUTE)
    assert found is not None
    assert found.start <= at * MINUTE or not any(
        is_open(m) for m in range(at, int(found.start) // MINUTE)
    )
