"""How long ago, in words.  Reference: cli 1.5."""

from __future__ import annotations

import pytest

from hekla.cli.vcctl.ages import age, full, human

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-MINUTE, "<invalid>"),
        (-0.001, "0s"),
        (-1, "0s"),
        (62, "62s"),
        (180, "3m"),
        (190, "3m10s"),
        (121 * MINUTE + 56, "121m"),
        (5 * HOUR + 9, "5h"),
        (5 * HOUR + 7 * MINUTE + 9, "5h7m"),
        (12 * HOUR + 7 * MINUTE + 9, "12h"),
        (5 * DAY + 7 * MINUTE, "5d"),
        (5 * DAY + 9 * HOUR, "5d9h"),
        (531 * DAY, "531d"),
        ((365 * 5 + 89) * DAY, "5y89d"),
        ((365 * 12 + 15) * DAY, "12y"),
    ],
)
def test_elapsed_time(seconds: float, text: str):
    assert human(seconds) == text


def test_the_library_drops_no_days():
    assert human(3 * 365 * DAY) == "3y0d"
    assert human(3 * 365 * DAY, whole_years=True) == "3y"


def test_a_time_that_is_not_there():
    assert age(None, 0.0) == "<unknown>"
    assert full(None) == "0001-01-01 00:00:00 +0000 UTC"
