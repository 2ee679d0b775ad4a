"""Two streams kept apart, and read as one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hekla.local.kubelet.records import Slot
from hekla.local.kubelet.runtime.interleaved_logs import log_tail, read
from hekla.local.kubelet.runtime.logs import NOTE, Clock, Options

SECOND = 1_000_000_000


@pytest.fixture
def slot(tmp_path: Path) -> Slot:
    """Six lines, one written each second from 1 on, each second one of them to standard error."""
    made = Slot(tmp_path, "c", 0)
    for each, numbers in ((made, (1, 3, 5)), (made.errors, (2, 4, 6))):
        each.log.write_text("".join(f"line {n}\n" for n in numbers))
        each.times.write_bytes(
            b"".join(NOTE.pack(7 * (at + 1), n * SECOND) for at, n in enumerate(numbers))
        )
    return made


async def text(slot: Slot, **options: object) -> str:
    chunks = read(slot, Options(**options), Clock(), lambda: False)  # type: ignore[arg-type]
    return b"".join([chunk async for chunk in chunks]).decode()


def lines(*numbers: int) -> str:
    return "".join(f"line {n}\n" for n in numbers)


async def test_each_and_both(slot: Slot) -> None:
    assert await text(slot) == lines(1, 2, 3, 4, 5, 6)
    assert await text(slot, stream="Stdout") == lines(1, 3, 5)
    assert await text(slot, stream="Stderr") == lines(2, 4, 6)


@pytest.mark.parametrize(
    ("tail", "expected"), [(0, ()), (1, (6,)), (3, (4, 5, 6)), (99, (1, 2, 3, 4, 5, 6))]
)
async def test_the_last_lines_of_both(slot: Slot, tail: int, expected: tuple[int, ...]) -> None:
    assert await text(slot, tail=tail) == lines(*expected)


async def test_since_timestamps_and_a_limit(slot: Slot) -> None:
    assert await text(slot, since=4 * SECOND) == lines(4, 5, 6)
    assert await text(slot, since=2 * SECOND, tail=2) == lines(5, 6)
    assert await text(slot, limit=9) == "line 1\nli"
    assert (await text(slot, timestamps=True, tail=2)).splitlines() == [
        "1970-01-01T00:00:05.000000000Z line 5",
        "1970-01-01T00:00:06.000000000Z line 6",
    ]


async def test_a_last_line_without_its_end_stays_in_its_place(slot: Slot) -> None:
    with slot.log.open("ab") as file:
        file.write(b"half")
    assert await text(slot) == lines(1, 2, 3, 4, 5, 6) + "half"
    assert await text(slot, tail=1) == "half"


def test_log_tail(slot: Slot) -> None:
    assert log_tail(slot, 14) == b"line 5\nline 6\n"


async def test_who_follows_sees_what_the_notes_saw(tmp_path: Path) -> None:
    """Lines that come at different times are shown in that order, also long after."""
    slot = Slot(tmp_path, "c", 0)
    slot.log.touch()
    slot.errors.log.touch()
    clock = Clock()
    clock.start()
    clock.follow(slot)
    alive, seen = True, b""

    async def follow() -> None:
        nonlocal seen
        async for chunk in read(slot, Options(follow=True), clock, lambda: alive):
            seen += chunk

    reader = asyncio.create_task(follow())
    for number in range(1, 7):
        with (slot if number % 2 else slot.errors).log.open("ab") as file:
            file.write(b"line %d\n" % number)
        async with asyncio.timeout(60):
            while len(seen) < 7 * number:
                await asyncio.sleep(0.01)
    alive = False
    clock.leave(slot)
    await asyncio.wait_for(reader, 60)
    clock.close()
    assert seen.decode() == await text(slot) == lines(1, 2, 3, 4, 5, 6)


async def test_lines_in_quick_turns_stay_in_order(tmp_path: Path) -> None:
    slot = Slot(tmp_path, "c", 0)
    slot.log.touch()
    slot.errors.log.touch()
    clock = Clock()
    if clock._inotify < 0:
        pytest.skip("this system does not tell in which order files grow")
    clock.follow(slot)
    for number in range(1, 9):
        with (slot if number % 2 else slot.errors).log.open("ab") as file:
            file.write(b"line %d\n" % number)
    clock._note_growth()
    for number in (9, 10):  # one turn for the system
        with slot.errors.log.open("ab") as file:
            file.write(b"line %d\n" % number)
    for number in (11, 12):
        with slot.log.open("ab") as file:
            file.write(b"line %d\n" % number)
    clock.leave(slot)
    clock.close()
    assert await text(slot) == lines(*range(1, 13))


async def test_the_stream_that_began_comes_first(tmp_path: Path) -> None:
    slot = Slot(tmp_path, "c", 0)
    slot.log.touch()
    slot.errors.log.touch()
    clock = Clock()
    clock.follow(slot)
    for each, said in ((slot.errors, b"trouble\n"), (slot, b"after it\n")):
        with each.log.open("ab") as file:
            file.write(said)
    clock.leave(slot)
    clock.close()
    assert await text(slot) == "trouble\nafter it\n"


async def test_a_shortened_stream_and_a_whole_one(tmp_path: Path) -> None:
    slot = Slot(tmp_path, "c", 0)
    slot.log.touch()
    slot.errors.log.touch()
    clock = Clock(max_size=16384, max_files=3)
    if not clock._can_punch:
        pytest.skip("this system cannot give parts of a file back")
    slot.errors.log.write_text("first\n")
    clock._note(slot.errors, SECOND)
    for number in range(1000):
        with slot.log.open("ab") as file:
            file.write(b"%07d %s\n" % (number, b"x" * 91))
        clock._note(slot, (2 + number) * SECOND)
    if not slot.log_start.exists():
        pytest.skip("this file system cannot give parts of a file back")
    seen = (await text(slot)).splitlines()
    assert seen[0] == "first"
    numbers = [int(line.split()[0]) for line in seen[1:]]
    assert numbers == list(range(numbers[0], 1000)) and numbers[0] > 0
