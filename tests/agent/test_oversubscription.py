"""What is lent of a node: samples, their mean, and when the node's status is written."""

from __future__ import annotations

import pytest

from hekla.agent.oversubscription import (
    Names,
    Offer,
    Pace,
    Samples,
    differs,
    idle,
    stated_by,
    status_patch,
    types,
    weighted_mean,
    written,
)
from hekla.agent.watermarks import Kind

BATCH = Names()
GIB = 1 << 30


def offer(cpu: int, memory: int) -> Offer:
    return {Kind.CPU: cpu, Kind.MEMORY: memory}


@pytest.mark.parametrize(
    ("allocatable", "usage", "offered"),
    [(3000, 1000, 1200), (10000, 2000, 4800), (1000, 1500, 0), (1001, 0, 600)],
)
def test_idle(allocatable: int, usage: int, offered: int) -> None:
    assert idle(allocatable, usage, 60) == offered


@pytest.mark.parametrize(
    ("samples", "mean"),
    [([], 0), ([7], 7), ([0, 300], 200), ([100, 200, 400], 300), ([0] * 9 + [1023], 512)],
)
def test_newer_samples_weigh_twice_as_much(samples: list[int], mean: int) -> None:
    assert weighted_mean(samples) == mean


def test_ten_samples_are_kept_and_a_kind_without_one_keeps_what_it_has() -> None:
    samples = Samples()
    assert samples.offer(Kind) is None
    samples.add(Kind.MEMORY, 5)
    for cpu in [9999] * 5 + [100] * 10:
        samples.add(Kind.CPU, cpu)
    assert samples.offer(Kind) == offer(100, 5)
    assert samples.offer([Kind.MEMORY]) == offer(0, 5)
    samples.clear()
    assert samples.offer(Kind) is None


@pytest.mark.parametrize(
    ("annotation", "configured", "wanted"),
    [
        ("", "cpu,memory", {"cpu", "memory"}),
        ("memory", "cpu,memory", {"memory"}),
        (" cpu , memory ", "", {"cpu", "memory"}),
        ("", "", set()),
        ("gpu", "cpu", set()),
    ],
)
def test_types(annotation: str, configured: str, wanted: set[str]) -> None:
    assert types(annotation, configured) == wanted


@pytest.mark.parametrize(
    ("new", "stated", "wanted"), [(0, 0, False), (1, 0, True), (110, 100, False), (111, 100, True), (89, 100, True), (0, 100, True)]
)  # fmt: skip
def test_what_differs_much(new: int, stated: int, wanted: bool) -> None:
    assert differs(new, stated) is wanted


def test_an_offer_is_written_when_it_changes_much_and_every_sixth_time() -> None:
    pace = Pace()
    steady = offer(1000, GIB)
    due = [pace.due(steady, steady) for _ in range(12)]
    assert due == ([False] * 5 + [True]) * 2
    assert pace.due(steady, offer(0, GIB))
    assert pace.due(offer(1000, 2 * GIB), steady)


def test_amounts_as_a_status_holds_them() -> None:
    assert written(offer(1200, 3 * GIB), BATCH) == {
        "kubernetes.io/batch-cpu": "1200",
        "kubernetes.io/batch-memory": "3Gi",
    }
    assert written(offer(1, 5), Names("a.com/cpu", "a.com/memory")) == {
        "a.com/cpu": "1",
        "a.com/memory": "5",
    }


def test_what_a_node_states() -> None:
    assert stated_by({BATCH.cpu: "1200", BATCH.memory: "3Gi"}, BATCH) == offer(1200, 3 * GIB)
    assert stated_by({BATCH.cpu: "lots"}, BATCH) == offer(0, 0)


def test_only_what_differs_is_patched() -> None:
    amounts = written(offer(1200, GIB), BATCH)
    status = {"capacity": {"cpu": "4", **amounts}, "allocatable": {BATCH.cpu: "1.2k"}}
    assert status_patch(status, amounts) == {"status": {"allocatable": {BATCH.memory: "1Gi"}}}
    assert status_patch({"capacity": amounts, "allocatable": amounts}, amounts) is None


def test_resources_are_removed() -> None:
    gone = dict.fromkeys((BATCH.cpu, BATCH.memory))
    status = {"capacity": {"cpu": "4", BATCH.cpu: "1"}}
    assert status_patch(status, gone) == {"status": {"capacity": {BATCH.cpu: None}}}
    assert status_patch({}, gone) is None
