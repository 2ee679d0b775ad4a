"""One log from two, for a pod that keeps standard output and standard error apart.

Each stream is complete and in order in its own file. The order between the files comes from notes
of when each file grew (logs.py), line by line. If lines alternate, each has its own note. If
several lines of one stream are written between two lines of the other within one round of notes, a
hundredth of a second, they may appear too early. Without a kubelet there are no notes, and the file
that was written last comes last.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from heapq import merge

from hekla.api.text.times import nano_stamp
from hekla.local.kubelet.records import Slot
from hekla.local.kubelet.runtime import logs
from hekla.local.kubelet.runtime.logs import (
    CHUNK,
    Clock,
    Dates,
    Options,
    line_start,
    start_of_log,
    tail_start,
)

Line = tuple[int, int, bytes]
"""(nanoseconds since the epoch, 0 for output and 1 for errors, the line with its newline if it has
one)."""


class Stream:
    """One of the two files, read from its beginning and then as it grows."""

    def __init__(self, number: int, slot: Slot) -> None:
        self.number = number
        self.slot = slot
        self.descriptor = os.open(slot.log, os.O_RDONLY | os.O_CLOEXEC)
        self.position = start_of_log(slot)

    def skip(self, options: Options) -> None:
        """Skip what is too old, and what cannot be among the last lines of both."""
        size = os.fstat(self.descriptor).st_size
        first = self.position
        if options.since is not None:
            found = Dates(self.slot).first_since(options.since, size)
            self.position = line_start(self.descriptor, max(first, found), size)
        if options.tail is not None:
            self.position = max(
                self.position, tail_start(self.descriptor, size, options.tail, first)
            )

    def lines(self, *, last: bool) -> Iterator[Line]:
        """The complete lines that exist now; with `last` also the text after the last newline."""
        size, dates, when = os.fstat(self.descriptor).st_size, Dates(self.slot), 0
        held = b""
        while (at := self.position + len(held)) < size:
            data = os.pread(self.descriptor, min(CHUNK, size - at), at)
            if (
                first := start_of_log(self.slot)
            ) > self.position:  # the reader was too slow: this part of the log was released
                self.position, held = first, b""
                continue
            *whole, held = (held + data).split(b"\n")
            for line in whole:
                when = max(when, dates.of(self.position))
                self.position += len(line) + 1
                yield when, self.number, line + b"\n"
        if last and held:
            when = max(when, dates.of(self.position))
            self.position += len(held)
            yield when, self.number, held


def lines(streams: list[Stream], *, last: bool) -> Iterator[Line]:
    """The lines of both streams that exist now, in order."""
    return merge(*(stream.lines(last=last) for stream in streams), key=lambda line: line[:2])


async def read(
    slot: Slot, options: Options, clock: Clock, running: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The log of a container, or one of its streams, with a reader's options."""
    if slot.split and options.stream == "All":
        found = logs.limited(chunks(slot, options, clock, running), options.limit)
    else:
        found = logs.read(
            slot.errors if options.stream == "Stderr" else slot, options, clock, running
        )
    async for chunk in found:
        yield chunk


async def chunks(
    slot: Slot, options: Options, clock: Clock, running: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Both streams without the byte limit; with `follow` until the container has ended and
    everything is read."""
    with ExitStack() as stack:
        streams = [Stream(number, each) for number, each in enumerate((slot, slot.errors))]
        for stream in streams:
            stack.callback(os.close, stream.descriptor)
            stream.skip(options)
        surplus = 0
        if options.tail is not None:
            begin = [stream.position for stream in streams]
            surplus = max(0, sum(1 for _ in lines(streams, last=True)) - options.tail)
            for stream, position in zip(streams, begin, strict=True):
                stream.position = position
        while True:
            # Checked before the read, so that everything written before the end is read.
            alive = running()
            done = not options.follow or not alive
            out, length = [], 0
            for when, _, line in lines(streams, last=done):
                if surplus:
                    surplus -= 1
                    continue
                out.append(nano_stamp(when).encode() + b" " + line if options.timestamps else line)
                length += len(line)
                if length >= CHUNK:
                    yield b"".join(out)
                    out, length = [], 0
            if out:
                yield b"".join(out)
            if done:
                return
            await clock.growth(slot)


def log_tail(slot: Slot, length: int) -> bytes:
    """The last bytes of both streams, in order."""
    with ExitStack() as stack:
        streams = [Stream(number, each) for number, each in enumerate((slot, slot.errors))]
        for stream in streams:
            stack.callback(os.close, stream.descriptor)
            stream.position = max(stream.position, os.fstat(stream.descriptor).st_size - length)
        return b"".join(line for _, _, line in lines(streams, last=True))[-length:]
