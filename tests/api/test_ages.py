"""Lengths of time in kubectl's short form."""

from __future__ import annotations

import pytest

from hekla.api.text.ages import DAY, HOUR, MINUTE, age, human


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-MINUTE, "<invalid>"),
        (-0.001, "0s"),
        (-1, "0s"),
        (-5, "<invalid>"),
        (45, "45s"),
        (62, "62s"),
        (120, "2m"),
        (127, "2m7s"),
        (180, "3m"),
        (190, "3m10s"),
        (3600, "60m"),
        (121 * MINUTE + 56, "121m"),
        (5 * HOUR + 9, "5h"),
        (5 * HOUR + 7 * MINUTE + 9, "5h7m"),
        (3 * HOUR + 12 * MINUTE, "3h12m"),
        (12 * HOUR + 7 * MINUTE + 9, "12h"),
        (3 * DAY + HOUR, "3d1h"),
        (5 * DAY, "5d"),
        (5 * DAY + 7 * MINUTE, "5d"),
        (5 * DAY + 9 * HOUR, "5d9h"),
        (531 * DAY, "531d"),
        (3 * 365 * DAY, "3y"),
        ((365 * 5 + 89) * DAY, "5y89d"),
        ((365 * 12 + 15) * DAY, "12y"),
    ],
)
def test_elapsed_time(seconds: float, text: str) -> None:
    assert human(seconds) == text


def test_a_time_that_is_not_there() -> None:
    assert age(None, 0.0) == age("", 0.0) == "<unknown>"
    assert age("yesterday", 0.0) == "<invalid>"
