"""Times between the wire and arithmetic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from hekla.api.text.times import (
    age_of,
    instant,
    micro_stamp,
    microseconds,
    nano_stamp,
    stamp,
    stamp_of,
    zoned_stamp,
)


@given(st.integers(0, 4_000_000_000))
def test_what_is_written_is_read_again(seconds: int) -> None:
    assert instant(stamp(seconds)) == seconds
    assert stamp(seconds + 0.9) == stamp(seconds)


def test_an_absent_time_has_no_age() -> None:
    assert (instant(None), instant(""), age_of(None, 5), age_of(stamp(3), 5)) == (0, 0, 0, 2)


def test_each_form_of_the_wire() -> None:
    seconds = instant("2026-01-01T00:00:07.25Z")
    assert stamp(seconds) == "2026-01-01T00:00:07Z"
    assert micro_stamp(seconds) == "2026-01-01T00:00:07.250000Z"
    assert nano_stamp(int(seconds) * 10**9 + 250_000_005) == "2026-01-01T00:00:07.250000005Z"
    assert zoned_stamp(seconds, timezone(timedelta(hours=1))) == "2026-01-01T01:00:07+01:00"
    assert zoned_stamp(seconds, UTC) == "2026-01-01T00:00:07Z"


def test_years_have_four_digits_and_microseconds_are_exact() -> None:
    first = datetime(1, 1, 1, tzinfo=UTC)
    assert stamp_of(first) == stamp(first.timestamp()) == "0001-01-01T00:00:00Z"
    assert stamp_of(first, "microseconds") == "0001-01-01T00:00:00.000000Z"
    assert microseconds("9999-12-31T23:59:59.999999Z") == 253402300799_999999
    assert microseconds("1969-12-31T23:59:59.999999Z") == -1
