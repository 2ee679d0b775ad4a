"""Times between the wire and arithmetic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hekla.api.text.times import age_of, instant, stamp


@given(st.integers(0, 4_000_000_000))
def test_what_is_written_is_read_again(seconds: int) -> None:
    assert instant(stamp(seconds)) == seconds
    assert stamp(seconds + 0.9) == stamp(seconds)


def test_an_absent_time_has_no_age() -> None:
    assert (instant(None), instant(""), age_of(None, 5), age_of(stamp(3), 5)) == (0, 0, 0, 2)
