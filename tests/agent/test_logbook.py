"""Reading logs, whose lines are dated by notes beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.local.agent.logbook import NOTE, Clock, Options, read
from hekla.local.agent.records import Slot

SECOND = 1_000_000_000


@pytest.fixture
def slot(tmp_path: Path) -> Slot:
    """Five lines, one written each second from 1 on."""
    made = Slot(tmp_path, "c", 0)
    lines = [f"line {n}\n".encode() for n in range(1, 6)]
    made.log.write_bytes(b"".join(lines))
    made.times.write_bytes(b"".join(NOTE.pack(7 * n, n * SECOND) for n in range(1, 6)))
    return made


async def text(slot: Slot, **options: object) -> str:
    chunks = read(slot, Options(**options), Clock(), lambda: False)  # type: ignore[arg-type]
    return b"".join([chunk async for chunk in chunks]).decode()


async def test_all_of_it(slot: Slot) -> None:
    assert await text(slot) == "line 1\nline 2\nline 3\nline 4\nline 5\n"


@pytest.mark.parametrize(("tail", "expected"), [(0, ""), (1, "line 5\n"), (2, "line 4\nline 5\n"), (5, None), (99, None)])
async def test_the_last_lines(slot: Slot, tail: int, expected: str | None) -> None:
    assert await text(slot, tail=tail) == (expected if expected is not None else slot.log.read_text())


async def test_a_last_line_without_its_end_counts(slot: Slot) -> None:
    with slot.log.open("ab") as file:
        file.write(b"half")
    assert await text(slot, tail=1) == "half"
    assert await text(slot, tail=2) == "line 5\nhalf"


async def test_since(slot: Slot) -> None:
    assert await text(slot, since=3_500_000_000) == "line 4\nline 5\n"
    assert await text(slot, since=3_000_000_000) == "line 3\nline 4\nline 5\n"
    assert await text(slot, since=6_000_000_000) == ""
    assert await text(slot, since=1_000_000_000, tail=1) == "line 5\n"


async def test_timestamps(slot: Slot) -> None:
    assert (await text(slot, timestamps=True, tail=2)).splitlines() == [
        "1970-01-01T00:00:04.000000000Z line 4", "1970-01-01T00:00:05.000000000Z line 5",
    ]  # fmt: skip


async def test_a_limit_cuts_inside_a_line(slot: Slot) -> None:
    assert await text(slot, limit=9) == "line 1\nli"


async def test_without_notes_the_file_itself_dates_its_lines(slot: Slot) -> None:
    slot.times.unlink()
    assert len(await text(slot, since=1_000_000_000)) == 35
    assert (await text(slot, timestamps=True)).count("Z line") == 5


async def test_a_tail_of_a_long_log_reads_backwards(tmp_path: Path) -> None:
    made = Slot(tmp_path, "c", 0)
    made.log.write_text("".join(f"{n:09d}\n" for n in range(50_000)))
    assert await text(made, tail=3) == "000049997\n000049998\n000049999\n"
    assert (await text(made, tail=20_000)).startswith("000030000\n")
