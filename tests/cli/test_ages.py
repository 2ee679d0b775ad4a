"""How long ago, in words.  Reference: cli 1.5."""

from __future__ import annotations

from hekla.api.text.ages import DAY, age
from hekla.cli.vcctl.ages import full, own_age

BEGINNING = "1970-01-01T00:00:00Z"


def test_the_library_drops_no_days():
    years = 3 * 365 * DAY
    assert own_age(BEGINNING, years) == "3y0d"
    assert age(BEGINNING, years) == "3y"
    assert own_age(BEGINNING, years + DAY) == age(BEGINNING, years + DAY) == "3y1d"
    assert own_age(BEGINNING, 9 * 365 * DAY) == "9y"


def test_a_time_that_is_not_there():
    assert own_age(None, 0.0) == "<unknown>"
    assert full(None) == "0001-01-01 00:00:00 +0000 UTC"
