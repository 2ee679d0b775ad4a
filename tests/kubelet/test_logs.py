"""Reading logs, whose lines are dated by notes beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hekla.local.kubelet.records import Slot
from hekla.local.kubelet.runtime.logs import NOTE, Clock, Options, read

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


@pytest.mark.parametrize(
    ("tail", "expected"), [(0, ""), (1, "line 5\n"), (2, "line 4\nline 5\n"), (5, None), (99, None)]
)
async def test_the_last_lines(slot: Slot, tail: int, expected: str | None) -> None:
    assert await text(slot, tail=tail) == (
        expected if expected is not None else slot.log.read_text()
    )


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
        "1970-01-01T00:00:04.000000000Z line 4",
        "1970-01-01T00:00:05.000000000Z line 5",
    ]


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


class Shortened:
    """A container that writes more than its log may hold."""

    def __init__(self, slot: Slot, clock: Clock) -> None:
        self.slot, self.clock, self.lines = slot, clock, 0

    def write(self, count: int) -> None:
        with self.slot.log.open("ab") as file:
            for _ in range(count):
                self.lines += 1
                file.write(b"%07d %s\n" % (self.lines, b"x" * 91))
        self.clock._note(self.slot, self.lines * SECOND)


@pytest.fixture
def shortened(tmp_path: Path) -> Shortened:
    made = Shortened(Slot(tmp_path, "c", 0), Clock(max_size=16384, max_files=3))
    made.slot.log.touch()
    if not made.clock._can_punch:
        pytest.skip("this system cannot give parts of a file back")
    return made


async def test_a_full_log_loses_its_oldest_lines_and_no_others(shortened: Shortened) -> None:
    for _ in range(100):
        shortened.write(50)
    slot = shortened.slot
    if not slot.log_start.exists():
        pytest.skip("this file system cannot give parts of a file back")
    assert slot.log.stat().st_blocks * 512 < 3 * 16384 + 5000 + 2 * 4096 < slot.log.stat().st_size
    lines = (await text(slot)).splitlines()
    numbers = [int(line.split()[0]) for line in lines]
    assert numbers == list(range(numbers[0], 5001)) and len(numbers) >= 2 * 163
    assert (await text(slot, tail=99999)) == "\n".join(lines) + "\n"
    assert len(slot.times.read_bytes()) <= NOTE.size * 12
    stamped = (await text(slot, timestamps=True, tail=1)).split()
    assert stamped[:2] == ["1970-01-01T01:23:20.000000000Z", "0005000"]


async def test_who_follows_a_log_does_not_notice_that_it_is_shortened(shortened: Shortened) -> None:
    state = {"alive": True}
    seen = b""
    shortened.write(10)
    async for chunk in read(
        shortened.slot, Options(follow=True), shortened.clock, lambda: state["alive"]
    ):
        seen += chunk
        if shortened.lines < 3000:
            shortened.write(100)
        else:
            state["alive"] = False
    assert [int(line.split()[0]) for line in seen.decode().splitlines()] == list(
        range(1, shortened.lines + 1)
    )
    assert shortened.slot.log_start.exists()


async def test_a_new_agent_knows_where_a_log_begins(shortened: Shortened) -> None:
    for _ in range(20):
        shortened.write(50)
    before = await text(shortened.slot)
    again = Clock(max_size=16384, max_files=3)
    again.follow(shortened.slot)
    assert again._starts[str(shortened.slot.log)] > 0
    assert await text(shortened.slot) == before
    again.close()
