"""One log out of two, where a pod keeps its standard output and standard error apart.

Each stream is whole and in order in a file of its own.  Between the files the notes decide that say
when each grew (logs.py): what was noted earlier comes first, line by line.  Lines that come in
turns have a note each; where several lines of one stream come between two of the other within a
round of notes, a hundredth of a second, they may stand too early.  Without an agent there are no
notes, and the file that was written to last comes last.
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
    """One of the two files, read from its beginning to its end and on from there."""

    def __init__(self, number: int, slot: Slot) -> None:
        self.number = number
        self.slot = slot
        self.descriptor = os.open(slot.log, os.O_RDONLY | os.O_CLOEXEC)
        self.position = start_of_log(slot)

    def skip(self, options: Options) -> None:
        """Leaves out what is too old, and what cannot be among the last lines of both."""
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
        """The whole lines that are there now; with `last` also what follows the last newline."""
        size, dates, when = os.fstat(self.descriptor).st_size, Dates(self.slot), 0
        held = b""
        while (at := self.position + len(held)) < size:
            data = os.pread(self.descriptor, min(CHUNK, size - at), at)
            if (
                first := start_of_log(self.slot)
            ) > self.position:  # the reader was too slow: that part of the log is gone
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
    """What is there now of both."""
    return merge(*(stream.lines(last=last) for stream in streams), key=lambda line: line[:2])


async def read(
    slot: Slot, options: Options, clock: Clock, running: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """What a container wrote, or one stream of it, as a reader wants it."""
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
    """Both streams as a reader wants them, without a limit; with `follow` until the container has
    ended and all is read."""
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
            # Asked before the read: what was written before the end is then read for certain.
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


def last_words(slot: Slot, length: int) -> bytes:
    """The end of both streams: what the last bytes of each hold, in order."""
    with ExitStack() as stack:
        streams = [Stream(number, each) for number, each in enumerate((slot, slot.errors))]
        for stream in streams:
            stack.callback(os.close, stream.descriptor)
            stream.position = max(stream.position, os.fstat(stream.descriptor).st_size - length)
        return b"".join(line for _, _, line in lines(streams, last=True))[-length:]
