"""Durations as Go reads and prints them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hekla.api.text.durations import (
    LARGEST,
    NotADuration,
    TooLong,
    duration_text,
    nanoseconds,
    nanoseconds_text,
    seconds,
)


@given(st.integers(-LARGEST, LARGEST))
def test_what_is_printed_is_read_again(length: int) -> None:
    assert nanoseconds(nanoseconds_text(length)) == length


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("0", 0.0),
        ("-0", 0.0),
        ("1.5h", 5400.0),
        ("+1h30m", 5400.0),
        ("-.5s", -0.5),
        ("1.s", 1.0),
        ("300ms", 0.3),
        ("1us1µs1μs", 3e-6),
        ("0.1234567891s", 0.123456789),
        ("2562047h47m16s", 9223372036.0),
        ("0" * 200 + "1s", 1.0),
        ("0." + "3" * 5000 + "s", 0.333333333),
    ],
)
def test_the_length_of_a_duration(text: str, length: float) -> None:
    assert seconds(text) == length


@pytest.mark.parametrize(
    "text", ["", "+", "1", "s", ".s", "1d", "1 s", "--1s", "00", "1s-1s", "١s"]
)
def test_what_go_does_not_read(text: str) -> None:
    with pytest.raises(NotADuration, match="such as 500ms"):
        nanoseconds(text)


@pytest.mark.parametrize("text", ["2562047h47m17s", "-3000000h", "9" * 5000 + "ns"])
def test_what_go_cannot_hold(text: str) -> None:
    with pytest.raises(TooLong):
        nanoseconds(text)


def test_seconds_are_printed_to_the_nanosecond() -> None:
    assert [duration_text(value) for value in (0, 0.5, 90, 3600, 1e-9, -61.25)] == [
        "0s",
        "500ms",
        "1m30s",
        "1h0m0s",
        "1ns",
        "-1m1.25s",
    ]
