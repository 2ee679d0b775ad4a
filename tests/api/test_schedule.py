"""When schedules fire."""

from datetime import UTC, datetime

import pytest

from hekla.api.text.schedule import ScheduleError, parse


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def fires(schedule: str, after: str, zone: str = "UTC", count: int = 1) -> list[str]:
    parsed, now, found = parse(schedule, zone), at(after), []
    for _ in range(count):
        following = parsed.next(now)
        assert following is not None
        found.append(datetime.fromtimestamp(following, UTC).strftime("%Y-%m-%dT%H:%M"))
        now = following
    return found


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("*/5 * * * *", "2026-01-01T10:00", "2026-01-01T10:05"),
        ("0 10 * * *", "2026-01-01T10:00", "2026-01-02T10:00"),
        ("59 23 31 12 *", "2026-01-01T00:00", "2026-12-31T23:59"),
        ("0 0 29 2 *", "2026-01-01T00:00", "2028-02-29T00:00"),
        ("30 6-16/4 * * 1-5", "2026-11-20T14:30", "2026-11-23T06:30"),
        ("30 10,11,12 * * mon-fri", "2026-11-20T12:30", "2026-11-23T10:30"),
        ("0 0 13 * fri", "2026-11-01T00:00", "2026-11-06T00:00"),  # either day is enough
        ("0 0 */2 * 0", "2026-11-01T00:00", "2026-11-03T00:00"),  # a stepped star is a restriction
        ("15/20 * * * *", "2026-01-01T10:16", "2026-01-01T10:35"),
        ("@hourly", "2026-01-01T10:30", "2026-01-01T11:00"),
        ("@weekly", "2026-01-01T10:30", "2026-01-04T00:00"),
        ("0 0 1 jan ?", "2026-01-01T10:30", "2027-01-01T00:00"),
    ],
)
def test_the_next_time(schedule: str, after: str, expected: str) -> None:
    assert fires(schedule, after) == [expected]


def test_intervals() -> None:
    assert parse("@every 1h30m").next(1000.4) == 6400.0
    assert parse("@every 10ms").next(1000.0) == 1001.0


@pytest.mark.scenario("controllers", 113)
def test_zones() -> None:
    assert fires("0 10 * * *", "2026-01-01T10:00", "Pacific/Honolulu") == ["2026-01-01T20:00"]
    assert fires("TZ=UTC 0 20 * * *", "2026-01-01T10:00", "Pacific/Honolulu") == [
        "2026-01-01T20:00"
    ]


def test_daylight_saving() -> None:
    spring = fires("30 2 * * *", "2026-03-28T00:00", "Europe/Berlin", 3)
    assert spring == ["2026-03-28T01:30", "2026-03-30T00:30", "2026-03-31T00:30"], (
        "02:30 does not exist on the 29th"
    )
    autumn = fires("30 2 * * *", "2026-10-24T12:00", "Europe/Berlin", 3)
    assert autumn == ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-26T01:30"], (
        "02:30 comes twice on the 25th"
    )
    assert fires("0 12 * * *", "2026-03-28T12:00", "Europe/Berlin", 2) == [
        "2026-03-29T10:00",
        "2026-03-30T10:00",
    ]


def test_what_never_comes() -> None:
    assert parse("59 23 31 2 *").next(at("2026-01-01T00:00")) is None


@pytest.mark.scenario("controllers", 111)
@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* * * * 7",
        "*/0 * * * *",
        "5-1 * * * *",
        "@often",
        "@every soon",
        "x * * * *",
    ],
)
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse(text)


@pytest.mark.scenario("controllers", 111)
def test_what_is_no_zone() -> None:
    with pytest.raises(ScheduleError, match="unknown time zone Moon/Base"):
        parse("* * * * *", "Moon/Base")


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("+5 * * * *", "5 * * * *"),
        ("*/+15 * * * *", "*/15 * * * *"),
        ("*-7 * * * *", "* * * * *"),
        ("0 0 ?-x * 1", "0 0 ? * 1"),
        ("0" * 5000 + "5 * * * *", "5 * * * *"),
        ("@every +0", "@every 1s"),
    ],
)
def test_odd_texts_that_the_original_reads_too(text: str, same: str) -> None:
    assert parse(text, "UTC") == parse(same, "UTC")


@pytest.mark.parametrize(
    "text",
    [
        "*/99999999999999999999 * * * *",
        "9" * 5000 + " * * * *",
        "@every 2562048h",
        "@every -2562048h",
        ", * * * *",
        "+ * * * *",
        "++5 * * * *",
    ],
)
def test_numbers_beyond_64_bits_are_no_schedule(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse(text, "UTC")
