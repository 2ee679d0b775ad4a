"""Which watermarks hold for a node, and what is decided by samples in a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.agent.watermarks import (
    DEFAULT,
    NEW,
    OLD,
    Counters,
    Kind,
    Marks,
    Sample,
    of_node,
    online_pressure,
    percent,
    stall,
)

CONFIGURED = {Kind.CPU: Marks(70, 20), Kind.MEMORY: Marks(50, 10)}
CPU_HIGH, CPU_LOW, MEMORY_HIGH = "cpu-high-watermark", "cpu-low-watermark", "memory-high-watermark"


@pytest.mark.parametrize(
    ("annotations", "cpu", "memory", "problem"),
    [
        ({}, Marks(70, 20), Marks(50, 10), ""),
        # one annotation: all marks are the node's, what it leaves out is upstream's default
        ({NEW + CPU_HIGH: "90"}, Marks(90, 30), Marks(60, 30), ""),
        ({OLD + CPU_HIGH: "90"}, Marks(90, 30), Marks(60, 30), ""),
        ({OLD + CPU_HIGH: "90", NEW + CPU_HIGH: "85"}, Marks(85, 30), Marks(60, 30), ""),
        ({NEW + MEMORY_HIGH: "75", OLD + CPU_LOW: "40"}, Marks(80, 40), Marks(75, 30), ""),
        ({NEW + CPU_HIGH: "much"}, Marks(70, 20), Marks(50, 10), 'high-watermark="much": a watermark is a whole number'),
        ({NEW + CPU_HIGH: "-5"}, Marks(70, 20), Marks(50, 10), '"-5": a watermark is a whole number of percent, from 0'),
        ({NEW + CPU_HIGH: "30"}, Marks(70, 20), Marks(50, 10), "the high cpu watermark of 30 percent is not above the low one of 30"),
    ],
)  # fmt: skip
def test_watermarks_of_a_node(
    annotations: dict[str, str], cpu: Marks, memory: Marks, problem: str
) -> None:
    found, wrong = of_node(annotations, CONFIGURED)
    assert found == {Kind.CPU: cpu, Kind.MEMORY: memory}
    assert problem in wrong and bool(problem) == bool(wrong)


@pytest.mark.parametrize(
    ("used", "allocatable", "wanted"), [(999, 1000, 99), (None, 1000, None), (5, 0, None)]
)
def test_percent(used: int | None, allocatable: int, wanted: int | None) -> None:
    assert percent(used, allocatable) == wanted


def samples(cpu: int | None, memory: int | None, stalled: float = 0.0) -> list[Sample]:
    return [
        Sample(Kind.CPU, cpu, DEFAULT[Kind.CPU], stalled, 40.0),
        Sample(Kind.MEMORY, memory, DEFAULT[Kind.MEMORY]),
    ]


EVICT_CPU, EVICT_BOTH, THAW, NOTHING = "cpu", "cpu memory", "thaw", ""
STORIES: dict[str, list[tuple[tuple[int | None, int | None], str]]] = {
    "six samples in a row": [*[((80, 50), NOTHING)] * 5, ((80, 50), EVICT_CPU), ((95, 50), EVICT_CPU)],
    "one below begins anew": [*[((80, 50), NOTHING)] * 5, ((79, 50), NOTHING), *[((80, 50), NOTHING)] * 5, ((80, 50), EVICT_CPU)],
    "each kind counts for itself": [*[((80, 60), NOTHING)] * 5, ((80, 60), EVICT_BOTH), ((80, 59), EVICT_CPU)],
    "all kinds have to be low": [((30, 31), NOTHING), ((31, 30), NOTHING), ((30, 30), THAW)],
    "a lost sample neither counts nor clears": [*[((80, 50), NOTHING)] * 5, ((None, 50), NOTHING), ((80, 50), EVICT_CPU)],
    "many lost samples clear": [*[((80, 50), NOTHING)] * 5, *[((None, 50), NOTHING)] * 6, ((80, 50), NOTHING)],
    "what is not known thaws nothing": [*[((None, 10), NOTHING)] * 5, ((None, 10), THAW)],
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_decisions(story: str) -> None:
    counters = Counters()
    for at, ((cpu, memory), wanted) in enumerate(STORIES[story]):
        decision = counters.decide(samples(cpu, memory), evicting=True)
        said = " ".join(sample.kind for sample in decision.evict) + (
            "thaw" if decision.thaw else ""
        )
        assert said == wanted, f"sample {at + 1}"


def test_nothing_is_evicted_where_the_node_is_not_oversubscribed() -> None:
    counters = Counters(times=1)
    assert counters.decide(samples(90, 90), evicting=False).evict == ()
    assert counters.decide(samples(90, 90), evicting=True).evict


def test_cleared_counters_begin_anew() -> None:
    counters = Counters(times=2)
    counters.decide(samples(90, 10), evicting=True)
    counters.clear()
    assert counters.decide(samples(90, 10), evicting=True).evict == ()


def test_pressure_counts_as_much_as_usage() -> None:
    counters = Counters(times=2)
    assert not counters.decide(samples(10, 10, stalled=40.0), evicting=True).thaw
    (why,) = counters.decide(samples(10, 10, stalled=55.5), evicting=True).evict
    assert str(why) == "online pods wait for cpu 55.5% of the time, the limit is 40%"
    assert counters.decide(samples(10, 10, stalled=39.9), evicting=True).thaw


def test_a_sample_says_why() -> None:
    assert (
        str(samples(91, 10)[0])
        == "cpu usage is 91% of what is allocatable, the high watermark is 80%"
    )


PRESSURE = "some avg10={} avg60=1.00 avg300=0.00 total=5\nfull avg10=90.00 avg60=0.00 avg300=0.00 total=1\n"


def test_pressure_is_that_of_pods_that_are_not_best_effort(tmp_path: Path) -> None:
    pods, proc = tmp_path / "kubepods", tmp_path / "pressure"
    for name, part in (("besteffort", 99.0), ("burstable", 3.5), ("pod1", 7.25)):
        (pods / name).mkdir(parents=True)
        (pods / name / "cpu.pressure").write_text(PRESSURE.format(part))
    proc.mkdir()
    (proc / "memory").write_text(PRESSURE.format(12.0))
    found = [online_pressure(pods, pods / "besteffort", kind, proc) for kind in Kind]
    assert found == [7.25, 12.0]  # of memory no group tells: it is the machine's
    assert online_pressure(tmp_path / "none", pods, Kind.CPU, proc) is None


@pytest.mark.parametrize(
    ("text", "wanted"), [("", None), ("full avg10=1\n", None), ("some avg10=x\n", None), ("some total=1 avg10=2.5", 2.5)]
)  # fmt: skip
def test_lines_of_pressure(text: str, wanted: float | None) -> None:
    assert stall(text) == wanted
