"""Container logs: reading them, and finding out when each line was written.

Containers write directly to their files, so nothing is lost or reordered if a process is killed,
and no process is in between. The price is that lines have no time. So whenever `Clock` sees a file
grow it notes the new size and the time; a line gets the time of the first note after it. What was
written while no kubelet ran gets the file's modification time.

A log that is too long is not rotated, because its writer has it open. Instead its oldest part is
released in place (a hole in the file), after a note of where the log now begins. Offsets stay the
same, so readers that follow the log notice nothing.
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

log = logging.getLogger("kubelet.logs")

NOTE = struct.Struct("<QQ")
"""(length of the log in bytes, nanoseconds since the epoch)."""
NOTE_INTERVAL = 0.01
"""Seconds between rounds of notes: a program that writes single bytes must not cause a note for
each."""
POLL_INTERVAL = 0.2
"""Seconds between checks if there is no inotify."""
CHUNK = 65536
MAX_SIZE = 10 << 20
"""By so many bytes a log is shortened at a time; the kubelet's default for log files."""
MAX_FILES = 5
BLOCK_SIZE = 4096
FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE = 1, 2
IN_MODIFY = 2


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a log request."""

    follow: bool = False
    tail: int | None = None
    since: int | None = None
    """Nanoseconds since the epoch."""
    timestamps: bool = False
    limit: int | None = None
    """In bytes."""
    stream: str = "All"
    """All, Stdout or Stderr."""


class Clock:
    """Notes when logs grow, and wakes readers that follow them."""

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
        """Directories of slots with two separate streams."""
        self._next = 0
        self._inotify = -1
        self._poll: asyncio.TimerHandle | None = None
        self._libc: ctypes.CDLL | None = None
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._inotify = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def start(self) -> None:
        """Start to watch for growth."""
        loop = asyncio.get_running_loop()
        if self._inotify >= 0:
            loop.add_reader(self._inotify, self._on_inotify)
        else:
            self._poll = loop.call_later(POLL_INTERVAL, self._poll_sizes)

    def close(self) -> None:
        """Stop watching."""
        if self._poll is not None:
            self._poll.cancel()
        if self._inotify >= 0:
            asyncio.get_running_loop().remove_reader(self._inotify)
            os.close(self._inotify)
            self._inotify = -1

    def follow(self, slot: Slot) -> None:
        """Note from now on when the slot's log grows."""
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
            self._poll = asyncio.get_running_loop().call_later(POLL_INTERVAL, self._poll_sizes)

    def leave(self, slot: Slot) -> None:
        """The container has ended: write the last note, and wake the followers."""
        path = str(slot.log)
        watch = self._watches.pop(path, None)
        if watch is not None:
            if slot.directory in self._apart:
                self._note_growth()  # in the order in which the streams were written
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
        """Wait until a log of the slot has grown or its container has ended; returns after a second
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

    def _on_inotify(self) -> None:
        if not self._note_growth():
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._inotify)
        loop.call_later(NOTE_INTERVAL, self._listen)

    def _note_growth(self) -> bool:
        """Note what has grown since the last time."""
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
        """Note the two logs of a slot, given in the order in which they were written.

        If a log has as many new lines as it had writes, each write was one line and gets its own
        note. Otherwise the kernel has combined several writes into one event, and all count as
        written at the time of the first.
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
            asyncio.get_running_loop().add_reader(self._inotify, self._on_inotify)

    def _poll_sizes(self) -> None:
        for watch, slot in list(self._slots.items()):
            if watch < 0:
                self._note(slot, time.time_ns())
        self._poll = asyncio.get_running_loop().call_later(POLL_INTERVAL, self._poll_sizes)

    def _note(self, slot: Slot, now: int, size: int = 0) -> None:
        """Note the size of a log at this time; without `size` its current size."""
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
        """Release the oldest part of a log. First note where the log now begins, so that nobody
        reads zeros."""
        path = str(slot.log)
        descriptor = os.open(slot.log, os.O_RDWR | os.O_CLOEXEC)
        try:
            start = line_start(descriptor, size - self.max_size * (self.max_files - 1), size)
            write_atomically(slot.log_start, b"%d\n" % start)
            assert self._libc is not None
            offset, length = ctypes.c_int64(0), ctypes.c_int64(start // BLOCK_SIZE * BLOCK_SIZE)
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
    """The ends of the lines after an offset; none if there are too many to check."""
    with open(path, "rb") as file:
        data = os.pread(file.fileno(), CHUNK, offset)
    return [offset + match.end() for match in re.finditer(b"\n", data)] if len(data) < CHUNK else []


def start_of_log(slot: Slot) -> int:
    """The offset of the first line that still exists."""
    try:
        return int(slot.log_start.read_bytes())
    except (OSError, ValueError):
        return 0


def read_notes(slot: Slot) -> list[tuple[int, int]]:
    """All notes of a log in order: (length, nanoseconds)."""
    try:
        data = slot.times.read_bytes()
    except OSError:
        return []
    return list(NOTE.iter_unpack(data[: len(data) // NOTE.size * NOTE.size]))


class Dates:
    """When each byte of a log was written, according to the notes."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._read()

    def _read(self) -> None:
        notes = read_notes(self._slot)
        self.lengths = [length for length, _ in notes]
        self.times = [when for _, when in notes]

    def of(self, offset: int) -> int:
        """The time at which the byte at an offset was written, in nanoseconds since the epoch."""
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
        """The offset of the first byte that is not older than `when`; `size` if all are older."""
        at = bisect_left(self.times, when)
        if at < len(self.times):
            return self.lengths[at - 1] if at else 0
        end = self.lengths[-1] if self.lengths else 0
        return end if end < size and self.of(end) >= when else size


def tail_start(descriptor: int, size: int, lines: int, first: int = 0) -> int:
    """The offset of the last `lines` lines, at least `first`."""
    if lines <= 0:
        return size
    found, position = 0, size
    while position > first:
        length = min(CHUNK, position - first)
        position -= length
        block = os.pread(descriptor, length, position)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            if position + at != size - 1:  # the newline at the end of the log does not begin a line
                found += 1
                if found == lines:
                    return position + at + 1
    return first


def line_start(descriptor: int, offset: int, size: int) -> int:
    """The beginning of the first line at or after an offset."""
    while 0 < offset < size:
        block = os.pread(descriptor, CHUNK, offset - 1)
        at = block.find(b"\n")
        if at >= 0:
            return offset + at
        offset += len(block)
    return min(offset, size)


def log_tail(slot: Slot, length: int) -> bytes:
    """The last bytes of a log. Raises OSError."""
    with open(slot.log, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - length))
        return file.read(length)


async def read(
    slot: Slot, options: Options, clock: Clock, running: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """A log with a reader's options, in chunks; with `follow` until the container has ended and
    everything is read."""
    descriptor = os.open(slot.log, os.O_RDONLY | os.O_CLOEXEC)
    try:
        async for chunk in limited(
            chunks(descriptor, slot, options, clock, running), options.limit
        ):
            yield chunk
    finally:
        os.close(descriptor)


async def limited(whole: AsyncIterator[bytes], left: int | None) -> AsyncIterator[bytes]:
    """At most `left` bytes of a log; everything if that is None."""
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
    """The log without the byte limit."""
    size = os.fstat(descriptor).st_size
    dates = Dates(slot)
    position = first = start_of_log(slot)
    if options.since is not None:
        position = line_start(descriptor, max(first, dates.first_since(options.since, size)), size)
    if options.tail is not None:
        position = max(position, tail_start(descriptor, size, options.tail, first))
    held = b""
    while True:
        # Checked before the read, so that everything written before the end is read.
        alive = running()
        data = os.pread(descriptor, CHUNK, position)
        if data:
            if (
                first := start_of_log(slot)
            ) > position:  # the reader was too slow: this part of the log was released
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
