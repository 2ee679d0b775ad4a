"""Bandwidths as text, and the rule of the three limits."""

from __future__ import annotations

import pytest

from hekla.agent.network.limits import Limits, limits_of
from hekla.agent.network.sizes import bytes_per_second

MEGABIT = 125_000
TEXTS = {
    "online_bandwidth_watermark": "800Mbps",
    "interval": "10000000",
    "offline_low_bandwidth": "100Mbps",
    "offline_high_bandwidth": "400Mbps",
}
LIMITS = Limits(800 * MEGABIT, 10_000_000, 100 * MEGABIT, 400 * MEGABIT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", 1000),
        ("8Kbps", 1000),
        ("100Mbps", 12_500_000),
        ("2Gbps", 250_000_000),
        ("1Tbps", 125_000_000_000),
        ("8Kibps", 1024),
        ("1Mibps", 131_072),
        ("1Gibps", 134_217_728),
        ("1024Tibps", 1024**5 // 8),
        ("0Mbps", 0),
    ],
)
def test_a_size(text: str, expected: int) -> None:
    assert bytes_per_second(text) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", ': strconv.ParseUint: parsing "": invalid syntax'),
        ("-5Mbps", ': strconv.ParseUint: parsing "-5": invalid syntax'),
        ("1.5Mbps", ': strconv.ParseUint: parsing "1.5": invalid syntax'),
        ("99999999999999999999", ': strconv.ParseUint: parsing "99999999999999999999": value out of range'),
    ],
)  # fmt: skip
def test_a_number_that_is_none(text: str, why: str) -> None:
    with pytest.raises(ValueError) as told:
        bytes_per_second(text)
    assert str(told.value) == (
        f"size string {text} is illegal, only support positive integer with unit like Kbps, Mbps, Gbps, Tbps{why}"
    )


@pytest.mark.parametrize("text", ["5MB", "5mbps", "5bps", "5Mbps ", "5Mbpss"])
def test_a_unit_that_is_none(text: str) -> None:
    with pytest.raises(ValueError) as told:
        bytes_per_second(text)
    assert str(told.value) == (
        f"size {text} is illegal, only support positive integer with unit like Kbps, Mbps, Gbps, Tbps"
    )


def test_offline_pods_get_little_while_online_pods_are_above_the_watermark() -> None:
    limits = limits_of(TEXTS)
    assert limits == LIMITS
    assert limits.offline(800 * MEGABIT + 1) == 100 * MEGABIT
    assert limits.offline(800 * MEGABIT) == limits.offline(0) == 400 * MEGABIT


def test_offline_pods_are_never_cut_off() -> None:
    nothing = Limits(800 * MEGABIT, 10_000_000, 0, 0)
    assert nothing.offline(0) == nothing.offline(801 * MEGABIT) == 1000


def test_what_is_not_said_stays() -> None:
    assert limits_of({"offline_low_bandwidth": "50Mbps"}, LIMITS) == Limits(
        800 * MEGABIT, 10_000_000, 50 * MEGABIT, 400 * MEGABIT
    )
    with pytest.raises(ValueError, match="size string  is illegal"):
        limits_of({"offline_low_bandwidth": "50Mbps"})
