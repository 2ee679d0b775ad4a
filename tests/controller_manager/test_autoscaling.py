"""How many replicas there should be, and how fast their number may follow: Kubernetes' documented
numbers, and rules that hold for any."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.local.controller_manager.autoscaling.behavior import (
    Bounds,
    Judgement,
    Memory,
    Moment,
    limited,
    stabilized,
)
from hekla.local.controller_manager.autoscaling.replicas import (
    NoReplicas,
    Patience,
    Sample,
    ScaledPod,
    Tolerance,
    by_average,
    by_utilization,
    grouped,
    tolerances,
)
from hekla.local.controller_manager.autoscaling.usage import (
    ContainerMetrics,
    Identity,
    PodMetrics,
    samples_of,
)

NOW = 10_000.0
OLD = NOW - 3600
USUAL = Tolerance()


def pod(name: str, request: int | None = 1000, **more: Any) -> ScaledPod:
    return ScaledPod(name, request=request, **{"started": OLD, "ready_changed": OLD, **more})


def asked(
    target: int,
    *used: int | None,
    current: int | None = None,
    request: int = 1000,
    unready: int = 0,
    tolerance: Tolerance = USUAL,
) -> int:
    """Replicas for pods that use so many millicores; None is one that is not measured, `unready`
    more are starting."""
    pods = [pod(f"p{number}", request) for number in range(len(used))]
    pods += [pod(f"u{number}", request, phase="Pending") for number in range(unready)]
    samples = {
        f"p{number}": Sample(NOW, 15, value)
        for number, value in enumerate(used)
        if value is not None
    }
    groups = grouped(pods, samples, "cpu", Patience(), NOW)
    replicas = len(pods) if current is None else current
    return by_utilization("cpu", replicas, target, pods, samples, groups, tolerance).replicas


# ---------------------------------------------------------------------------------- one metric


def average(target: int, *used: int) -> int:
    pods = [pod(f"p{number}", None) for number in range(len(used))]
    samples = {f"p{number}": Sample(NOW, 15, value) for number, value in enumerate(used)}
    groups = grouped(pods, samples, "cpu", Patience(), NOW)
    return by_average(len(used), target, samples, groups, Tolerance()).replicas


def test_twice_the_value_is_twice_the_pods_and_half_is_half() -> None:
    assert average(100, 200, 200) == 4
    assert average(100, 50, 50) == 1


def test_the_walk_through_of_the_documentation() -> None:
    assert asked(50, 610, request=200) == 7  # 305% of 50%
    assert asked(50, 0, 0, 0, 0, 0, 0, 0) == 0  # below the least, which is one


@pytest.mark.parametrize(("used", "replicas"), [(550, 2), (450, 2), (560, 3), (440, 2), (240, 1)])
def test_a_tenth_to_either_side_changes_nothing(used: int, replicas: int) -> None:
    assert asked(50, used, used) == replicas


def test_a_tolerance_for_each_direction() -> None:
    own = tolerances(0.1, {"scaleUp": 0.0})
    assert asked(50, 520, 520, tolerance=own) == 3
    assert asked(50, 460, 460, tolerance=own) == 2


def test_pods_that_are_not_measured_hold_back() -> None:
    assert asked(50, 1000, 1000, None) == 4  # 67% of 50%, not 100%
    assert asked(50, 100, None, None) == 3  # the others may use all that they ask for
    assert asked(50, 100, 100, 100, None) == 3
    assert asked(90, 1000, None) == 2  # with the other at nothing it would be below: no change


def test_pods_that_start_hold_back_only_what_rises() -> None:
    assert asked(50, 1000, unready=1) == 2  # 100% and 0%
    assert asked(50, 1000, 1000, unready=1) == 4
    assert asked(50, 100, 100, unready=1) == 1


def test_who_is_left_out() -> None:
    pods = [
        pod("works"),
        pod("ends", deleting=True),
        pod("failed", phase="Failed"),
        pod("pending", phase="Pending"),
        pod("silent"),
        pod("unsaid", ready=None),
        pod("young", started=NOW - 20, ready_changed=NOW - 10),
        pod("youth", started=NOW - 60, ready_changed=NOW - 40),
        pod("never", ready=False, started=OLD, ready_changed=OLD + 5),
        pod("turned", ready=False, started=OLD, ready_changed=NOW - 5),
    ]
    samples = {one.name: Sample(NOW, 15, 10) for one in pods if one.name != "silent"}
    groups = grouped(pods, samples, "cpu", Patience(), NOW)
    assert groups.ignored == {"ends", "failed"}
    assert groups.missing == {"silent"}
    assert groups.unready == {"pending", "unsaid", "young", "never"}
    assert groups.ready == 3
    of_memory = grouped(pods, samples, "memory", Patience(), NOW)
    assert of_memory.unready == {"pending"}


def test_what_cannot_be_told() -> None:
    with pytest.raises(NoReplicas, match="did not receive metrics for targeted pods"):
        asked(50, unready=2)
    pods = [pod("a"), pod("b", None, lacking="side")]
    samples = {"a": Sample(NOW, 15, 10), "b": Sample(NOW, 15, 10)}
    groups = grouped(pods, samples, "cpu", Patience(), NOW)
    with pytest.raises(NoReplicas, match="missing request for cpu in container side of Pod b"):
        by_utilization("cpu", 2, 50, pods, samples, groups, Tolerance())


def test_the_container_that_is_meant() -> None:
    containers = [ContainerMetrics("c", {"cpu": "100m"}), ContainerMetrics("d", {"cpu": "1"})]
    found = [PodMetrics(Identity("p", "ns"), "2026-01-01T00:00:00Z", "15s", containers)]
    assert samples_of(found, "cpu", "")["p"].value == 1100
    assert samples_of(found, "cpu", "c")["p"].value == 100
    assert samples_of(found, "memory", "") == {}
    assert samples_of(found, "cpu", "e") == {}


USES = st.lists(st.one_of(st.none(), st.integers(0, 3000)), min_size=1, max_size=12)


@given(USES, st.integers(1, 100), st.integers(0, 4))
def test_silence_never_moves_further(used: list[int | None], target: int, unready: int) -> None:
    """Nor to the other side of where it would go without those of which nothing is known."""
    measured = [value for value in used if value is not None]
    if not measured:
        return
    current = len(used) + unready
    known = asked(target, *measured, current=current)
    whole = asked(target, *used, current=current, unready=unready)
    ratio = sum(measured) * 100 // (1000 * len(measured)) / target
    if Tolerance().covers(ratio):
        assert whole == current
    elif ratio > 1:
        assert whole >= current
    else:
        assert whole <= current and (whole >= known or unready)


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=12), st.integers(1, 100), st.data())
def test_who_uses_more_gets_no_fewer(used: list[int], target: int, data: st.DataObject) -> None:
    more = [value + data.draw(st.integers(0, 500)) for value in used]
    assert asked(target, *more) >= asked(target, *used)


# ------------------------------------------------------------------------------------------- pace


def pace(policies: list[tuple[str, int, int]], window: int = 0, choice: str = "Max") -> Any:
    return {
        "stabilizationWindowSeconds": window,
        "selectPolicy": choice,
        "policies": [
            {"type": kind, "value": value, "periodSeconds": period}
            for kind, value, period in policies
        ],
    }


def down(rules: Any) -> Any:
    return {"scaleDown": rules, "scaleUp": pace([("Pods", 4, 15), ("Percent", 100, 15)])}


def steps(behavior: Any, current: int, desired: int, seconds: float, count: int) -> list[int]:
    """The numbers at looks that are so many seconds apart."""
    memory, found = Memory(), []
    for number in range(count):
        now = NOW + number * seconds
        wanted = limited(memory, behavior, current, desired, Bounds(1, 1000), now).replicas
        memory.note(behavior, current, wanted, now)
        found.append(current := wanted)
    return found


def test_ten_percent_or_four_pods_a_minute() -> None:
    behavior = down(pace([("Pods", 4, 60), ("Percent", 10, 60)]))
    found = steps(behavior, 80, 10, 61, 16)
    assert found == [72, 64, 57, 51, 45, 40, 36, 32, 28, 24, 20, 16, 12, 10, 10, 10]


def test_no_more_than_the_policy_in_its_period() -> None:
    behavior = down(pace([("Pods", 4, 60)]))
    assert steps(behavior, 20, 1, 15, 9) == [16, 16, 16, 16, 12, 12, 12, 12, 8]


def test_the_lesser_of_policies_and_none_at_all() -> None:
    assert steps(down(pace([("Pods", 4, 60), ("Percent", 10, 60)], choice="Min")), 80, 1, 61, 2) == [76, 72]  # fmt: skip
    assert steps(down(pace([("Pods", 4, 60)], choice="Disabled")), 80, 1, 61, 2) == [80, 80]


def test_upwards_as_by_default() -> None:
    assert steps(down(pace([("Percent", 100, 15)])), 1, 100, 15.1, 6) == [5, 10, 20, 40, 80, 100]
    assert steps(None, 1, 100, 15, 6) == [4, 8, 16, 32, 64, 100]


def test_why_it_is_another_number() -> None:
    def reason(behavior: Any, current: int, desired: int) -> str:
        return limited(Memory(), behavior, current, desired, Bounds(2, 10), NOW).reason

    behavior = down(pace([("Pods", 1, 60)]))
    assert reason(behavior, 4, 100) == "ScaleUpLimit"
    assert reason(behavior, 9, 100) == "TooManyReplicas"
    assert reason(behavior, 9, 5) == "ScaleDownLimit"
    assert reason(behavior, 3, 1) == "TooFewReplicas"
    assert reason(behavior, 5, 6) == "DesiredWithinRange"
    assert reason(None, 3, 1) == "TooFewReplicas"
    assert reason(None, 3, 9) == "ScaleUpLimit"
    assert reason(None, 8, 30) == "TooManyReplicas"


def held(behavior: Any, asked: list[int], current: int, usual: float = 300.0) -> list[Judgement]:
    """Looks that are a minute apart."""
    memory = Memory()
    return [
        stabilized(memory, behavior, current, desired, usual, NOW + 60 * number)
        for number, desired in enumerate(asked)
    ]


def test_the_highest_of_five_minutes() -> None:
    found = held(None, [8, 3, 3, 3, 3, 3, 3], 8)
    assert [one.replicas for one in found] == [8, 8, 8, 8, 8, 3, 3]
    assert [one.reason for one in found][-3:] == ["ScaleDownStabilized", "ReadyForNewScale", "ReadyForNewScale"]  # fmt: skip


def test_a_window_for_each_direction() -> None:
    behavior = {"scaleDown": pace([("Percent", 100, 15)], 90), "scaleUp": pace([("Pods", 9, 15)], 90)}  # fmt: skip
    found = held(behavior, [4, 2, 8, 8, 1], 4)
    assert [one.replicas for one in found] == [4, 4, 4, 8, 4]
    assert found[2].reason == "ScaleUpStabilized"
    assert found[4].reason == "ScaleDownStabilized"


def test_what_is_found_at_first_counts_as_asked_for() -> None:
    memory = Memory()
    memory.begin(6, NOW)
    memory.begin(9, NOW + 1)
    assert memory.wanted == [Moment(NOW, 6)]
    assert stabilized(memory, None, 6, 2, 300.0, NOW + 15).replicas == 6


POLICIES = st.lists(
    st.tuples(st.sampled_from(["Pods", "Percent"]), st.integers(1, 100), st.integers(1, 120)),
    min_size=1,
    max_size=3,
)


@given(
    POLICIES,
    POLICIES,
    st.sampled_from(["Max", "Min", "Disabled"]),
    st.lists(st.integers(0, 60), min_size=1, max_size=15),
    st.integers(1, 40),
)
def test_the_number_stays_within_bounds_and_never_turns(
    ups: Any, downs: Any, choice: str, asked: list[int], current: int
) -> None:
    """Whatever the policies are: within the bounds, and never on the other side of what is asked for."""
    behavior = {"scaleUp": pace(ups, choice=choice), "scaleDown": pace(downs, choice=choice)}
    memory, bounds = Memory(), Bounds(1, 40)
    for number, desired in enumerate(asked):
        now = NOW + 15 * number
        wanted = limited(memory, behavior, current, desired, bounds, now).replicas
        memory.note(behavior, current, wanted, now)
        assert bounds.least <= wanted <= bounds.most
        assert min(current, desired) <= wanted <= max(current, desired, bounds.least)
        current = wanted
