"""The machine's time zone becomes a name before the engine hears of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.engine.model.time.durations import zone
from hekla.scheduler.localtime import time_zone
from hekla.scheduler.recording import RecordedState, Recording
from hekla.scheduler.replay import replay


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("Europe/Vienna", "Europe/Vienna"),
        (":/usr/share/zoneinfo/Asia/Tokyo", "Asia/Tokyo"),
        ("UTC", "UTC"),
    ],
)
def test_by_the_variable(stated: str, expected: str, tmp_path: Path) -> None:
    assert time_zone(stated, tmp_path / "none") == expected


def test_by_the_link(tmp_path: Path) -> None:
    target = tmp_path / "zoneinfo" / "Asia" / "Tokyo"
    target.parent.mkdir(parents=True)
    target.touch()
    link = tmp_path / "localtime"
    link.symlink_to(target)
    assert time_zone("", link) == "Asia/Tokyo"
    assert time_zone("Nowhere/Land", link) == "Asia/Tokyo"


def test_else_by_the_offset_of_now(tmp_path: Path) -> None:
    assert zone(time_zone("", tmp_path / "none")) is not None


@pytest.mark.parametrize("name", ["", "Nowhere/Land", "../etc/passwd", "+25:00", "1:00", "Europe"])
def test_what_is_no_zone(name: str) -> None:
    with pytest.raises(ValueError, match="is no time zone such as UTC, Europe/Vienna or"):
        zone(name)


def test_a_recording_keeps_the_zone(tmp_path: Path) -> None:
    recording = Recording(tmp_path)
    state = RecordedState(
        recording, time_zone="Asia/Tokyo", lifts_gates=True, scheduler_names=["volcano"]
    )
    assert str(state.zone) == "Asia/Tokyo"
    recording.close()
    assert replay(tmp_path).difference is None
