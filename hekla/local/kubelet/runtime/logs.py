"""Logs of containers: reading them, and knowing when each line came.

Containers write straight to their files, so nothing is lost or reordered whoever is killed, and no
process stands in between. The price is that lines carry no time.  `Clock` therefore notes, each
time that it sees a file grow, how long it was then; a line is dated by the first note behind it.
What was written while no agent ran gets the file's last change as its time.

A log that has grown too long is not rotated, as its writer holds it open: its oldest part is given
back to the file system where it lies (a hole), behind a note of where the log now begins.  Offsets
stay what they were, so whoever follows it does not notice.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import re
import struct
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from hekla.api.text.times import nano_stamp
from hekla.local.kubelet.records import Slot, write_atomically

log = logging.getLogger("agent.logs")

NOTE = struct.Struct("<QQ")
"""(length of the log in bytes, nanoseconds since the epoch)."""
PAUSE = 0.01
"""Seconds between two rounds of notes: a program that writes in single bytes must not make a note
of each."""
POLL_INTERVAL = 0.2
"""Seconds between looks where there is no inotify."""
CHUNK = 65536
MAX_SIZE = 10 << 20
"""Bytes by which a log is shortened at a time; kubelets have files of this size."""
MAX_FILES = 5
BLOCK = 4096
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE = 1, 2
IN_MODIFY = 2


@dataclass(frozen=True, slots=True)
class Options:
    """What a reader of a log wants."""

    follow: bool = False
    tail: int | None = None
    since: int | None = None
    """Nanoseconds since the epoch."""
    timestamps: bool = False
    limit: int | None = None
    """Bytes."""
    stream: str = "All"
    """Or Stdout or Stderr alone."""


class Clock:
    """Notes when logs grow, and wakes those who follow them."""

    def __init__(self, max_size: int = MAX_SIZE, max_files: int = MAX_FILES) -> None:
        self.max_size = max_size
        self.max_files = max_files
        """What a log may hold, as kubelets count it; the oldest of so many sizes goes when the last
        is full."""
        self._starts: dict[str, int] = {}
        self._can_punch = sys.platform == "linux"
        self._slots: dict[int, Slot] = {}
        self._watches: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._apart: set[Path] = set()
        """Directories of the slots that keep their two streams apart."""
        self._next = 0
        self._inotify = -1
        self._poll: asyncio.TimerHandle | None = None
        self._libc: ctypes.CDLL | None = None
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._inotify = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        if self._inotify >= 0:
            loop.add_reader(self._inotify, self._heard)
        else:
            self._poll = loop.call_later(POLL_INTERVAL, self._look)

    def close(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
        if self._inotify >= 0:
            asyncio.get_running_loop().remove_reader(self._inotify)
            os.close(self._inotify)
            self._inotify = -1

    def follow(self, slot: Slot) -> None:
        """Dates what the slot's container writes from now on."""
        if slot.split:
            self._apart.add(slot.directory)
            self.follow(slot.errors)
        path = str(slot.log)
        if path in self._watches:
            return
        notes = read_notes(slot)
        self._sizes[path] = notes[-1][0] if notes else 0
        self._starts[path] = start_of_log(slot)
        watch = self._next = self._next - 1
        if self._inotify >= 0 and self._libc is not None:
            number = self._libc.inotify_add_watch(self._inotify, os.fsencode(path), IN_MODIFY)
            watch = number if number >= 0 else watch
        self._slots[watch] = slot
        self._watches[path] = watch
        try:
            self._note(slot, slot.log.stat().st_mtime_ns)
        except OSError:
            pass
        if watch < 0 and self._poll is None:
            self._poll = asyncio.get_running_loop().call_later(POLL_INTERVAL, self._look)

    def leave(self, slot: Slot) -> None:
        """The container has ended: the last note, and its followers are woken."""
        path = str(slot.log)
        watch = self._watches.pop(path, None)
        if watch is not None:
            if slot.directory in self._apart:
                self._take()  # in the order in which the streams were written to
                self._apart.remove(slot.directory)
                self.leave(slot.errors)
            self._slots.pop(watch, None)
            self._note(slot, time.time_ns())
            if watch >= 0 and self._inotify >= 0 and self._libc is not None:
                self._libc.inotify_rm_watch(self._inotify, watch)
        self._sizes.pop(path, None)
        self._starts.pop(path, None)
        self._wake(slot)

    async def growth(self, slot: Slot) -> None:
        """Waits until a log of the slot has grown or its container has ended; looks once a second
        in any case."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(str(slot.directory), [])
        waiting.append(future)
        try:
            async with asyncio.timeout(1.0):
                await future
        except TimeoutError:
            pass
        finally:
            if future in waiting:
                waiting.remove(future)

    def _heard(self) -> None:
        if not self._take():
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._inotify)
        loop.call_later(PAUSE, self._listen)

    def _take(self) -> bool:
        """Notes what has grown since the last time."""
        try:
            data = os.read(self._inotify, CHUNK)
        except OSError:
            return False
        now, seen, at = time.time_ns(), set(), 0
        turns: dict[Path, list[Slot]] = {}
        while at < len(data):
            watch, _, _, length = struct.unpack_from("iIII", data, at)
            at += 16 + length
            if (slot := self._slots.get(watch)) is None:
                continue
            if self._apart and slot.directory in self._apart:
                turns.setdefault(slot.directory, []).append(slot)
            elif watch not in seen:
                seen.add(watch)
                self._note(slot, now)
        for slots in turns.values():
            self._note_turns(slots, now)
        return True

    def _note_turns(self, slots: list[Slot], now: int) -> None:
        """Notes the two logs of one slot, given in the order in which they were written to.

        A log that has as many new lines as it had turns got a line in each, so that each is noted
        in its place; else the system has made one turn of several writes, and all of them count as
        written at the first.
        """
        turns: dict[str, list[int]] = {}
        for at, slot in enumerate(slots):
            if not at or slot.log != slots[at - 1].log:
                turns.setdefault(str(slot.log), []).append(at)
        for path, places in turns.items():
            slot = slots[places[0]]
            ends = line_ends(path, self._sizes.get(path, 0)) if len(places) > 1 else []
            if len(ends) != len(places):
                self._note(slot, now + places[0])
                continue
            for end, place in zip(ends, places, strict=True):
                self._note(slot, now + place, end)
            self._note(slot, now + places[-1])

    def _listen(self) -> None:
        if self._inotify >= 0:
            asyncio.get_running_loop().add_reader(self._inotify, self._heard)

    def _look(self) -> None:
        for watch, slot in list(self._slots.items()):
            if watch < 0:
                self._note(slot, time.time_ns())
        self._poll = asyncio.get_running_loop().call_later(POLL_INTERVAL, self._look)

    def _note(self, slot: Slot, now: int, size: int = 0) -> None:
        """Notes that the log is so long now, without a size as long as it is."""
        path = str(slot.log)
        try:
            size = size or os.stat(path).st_size
        except OSError:
            return
        if size <= self._sizes.get(path, 0):
            return
        self._sizes[path] = size
        descriptor = os.open(
            slot.times, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            os.write(descriptor, NOTE.pack(size, now))
        finally:
            os.close(descriptor)
        if size - self._starts.get(path, 0) > self.max_size * self.max_files and self._can_punch:
            self._shorten(slot, size)
        self._wake(slot)

    def _shorten(self, slot: Slot, size: int) -> None:
        """Gives the oldest part of a log back.  First it is said where the log begins, then the
        rest may vanish: nobody reads zeros."""
        path = str(slot.log)
        descriptor = os.open(slot.log, os.O_RDWR | os.O_CLOEXEC)
        try:
            start = line_start(descriptor, size - self.max_size * (self.max_files - 1), size)
            write_atomically(slot.log_start, b"%d\n" % start)
            assert self._libc is not None
            offset, length = ctypes.c_int64(0), ctypes.c_int64(start // BLOCK * BLOCK)
            if (
                self._libc.fallocate(
                    descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, offset, length
                )
                != 0
            ):
                number = ctypes.get_errno()
                if number in (errno.EOPNOTSUPP, errno.ENOSYS):
                    self._can_punch = False
                    slot.log_start.unlink()
                log.warning(
                    "%s grows without limit: its file system cannot give a part of it back: %s",
                    slot.log,
                    os.strerror(number),
                )
                return
            self._starts[path] = start
            kept = [note for note in read_notes(slot) if note[0] > start]
            write_atomically(slot.times, b"".join(NOTE.pack(*note) for note in kept))
        finally:
            os.close(descriptor)

    def _wake(self, slot: Slot) -> None:
        for future in self._waiting.pop(str(slot.directory), ()):
            if not future.done():
                future.set_result(None)


def line_ends(path: str, offset: int) -> list[int]:
    """Where the lines end that were written from an offset on; none where there is more than one
    would look at."""
    with open(path, "rb") as file:
        data = os.pread(file.fileno(), CHUNK, offset)
    return [offset + match.end() for match in re.finditer(b"\n", data)] if len(data) < CHUNK else []


def start_of_log(slot: Slot) -> int:
    """The offset of the first line that is still there."""
    try:
        return int(slot.log_start.read_bytes())
    except (OSError, ValueError):
        return 0


def read_notes(slot: Slot) -> list[tuple[int, int]]:
    """All notes of a log: (length, nanoseconds), growing."""
    try:
        data = slot.times.read_bytes()
    except OSError:
        return []
    return list(NOTE.iter_unpack(data[: len(data) // NOTE.size * NOTE.size]))


class Dates:
    """When each byte of a log was written, as far as the notes tell."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._read()

    def _read(self) -> None:
        notes = read_notes(self._slot)
        self.lengths = [length for length, _ in notes]
        self.times = [when for _, when in notes]

    def of(self, offset: int) -> int:
        """Nanoseconds since the epoch of the byte at an offset."""
        at = bisect_right(self.lengths, offset)
        if at == len(self.lengths):
            self._read()
            at = bisect_right(self.lengths, offset)
        if at < len(self.times):
            return self.times[at]
        try:
            return self._slot.log.stat().st_mtime_ns
        except OSError:
            return time.time_ns()

    def first_since(self, when: int, size: int) -> int:
        """The offset of the first byte that is not older than `when`; `size` when all are older."""
        at = bisect_left(self.times, when)
        if at < len(self.times):
            return self.lengths[at - 1] if at else 0
        end = self.lengths[-1] if self.lengths else 0
        return end if end < size and self.of(end) >= when else size


def tail_start(descriptor: int, size: int, lines: int, first: int = 0) -> int:
    """The offset at which the last `lines` lines begin, none before `first`."""
    if lines <= 0:
        return size
    found, position = 0, size
    while position > first:
        length = min(CHUNK, position - first)
        position -= length
        block = os.pread(descriptor, length, position)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            if position + at != size - 1:  # the newline that ends the last line begins nothing
                found += 1
                if found == lines:
                    return position + at + 1
    return first


def line_start(descriptor: int, offset: int, size: int) -> int:
    """The beginning of the first line that starts at an offset or behind it."""
    while 0 < offset < size:
        block = os.pread(descriptor, CHUNK, offset - 1)
        at = block.find(b"\n")
        if at >= 0:
            return offset + at
        offset += len(block)
    return min(offset, size)


def last_words(slot: Slot, length: int) -> bytes:
    """The last bytes of a log.  Raises OSError."""
    with open(slot.log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - length))
        return file.read(length)


async def read(
    slot: Slot, options: Options, clock: Clock, running: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """One log as a reader wants it, in chunks; with `follow` until the container has ended and all
    is read."""
    descriptor = os.open(slot.log, os.O_RDONLY | os.O_CLOEXEC)
    try:
        async for chunk in limited(
            chunks(descriptor, slot, options, clock, running), options.limit
        ):
            yield chunk
    finally:
        os.close(descriptor)


async def limited(whole: AsyncIterator[bytes], left: int | None) -> AsyncIterator[bytes]:
    """No more than so many bytes of it, where there is a limit."""
    async for chunk in whole:
        if left is not None:
            chunk = chunk[:left]
            left -= len(chunk)
        if chunk:
            yield chunk
        if left == 0:
            return


async def chunks(
    descriptor: int, slot: Slot, options: Options, clock: Clock, running: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The log without its limit."""
    size = os.fstat(descriptor).st_size
    dates = Dates(slot)
    position = first = start_of_log(slot)
    if options.since is not None:
        position = line_start(descriptor, max(first, dates.first_since(options.since, size)), size)
    if options.tail is not None:
        position = max(position, tail_start(descriptor, size, options.tail, first))
    held = b""
    while True:
        # Asked before the read: what was written before the end is then read for certain.
        alive = running()
        data = os.pread(descriptor, CHUNK, position)
        if data:
            if (
                first := start_of_log(slot)
            ) > position:  # the reader was too slow: that part of the log is gone
                position, held = first, b""
                continue
            position += len(data)
            if not options.timestamps:
                yield data
                continue
            *lines, held = (held + data).split(b"\n")
            start = position - len(held) - sum(len(line) + 1 for line in lines)
            out = []
            for line in lines:
                out.append(nano_stamp(dates.of(start)).encode() + b" " + line + b"\n")
                start += len(line) + 1
            if out:
                yield b"".join(out)
            continue
        if not options.follow or not alive:
            break
        await clock.growth(slot)
    if held:
        yield nano_stamp(dates.of(position - len(held))).encode() + b" " + held
