"""The way to a container's standard input and terminal, which a process beside the container holds.

Containers outlive the kubelet, so the other end of their terminal cannot be the kubelet's.  The spawner
leaves a small process, the console, with each container that has `stdin` or `tty` (spawner.py,
`Console`); it listens on a socket in the slot.  What is spoken there: to the console, frames of one
letter and a length (`i` input, `e` end of input, `r` rows and columns); from it, the bare output of
the terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct

from hekla.local.kubelet.records import Slot
from hekla.local.kubelet.streaming.remote import Terminal

CHUNK = 64 * 1024
FRAME = struct.Struct(">cI")
SIZE = struct.Struct(">HH")


class Console:
    """A connection to a container's console."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tty: bool, once: bool
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.tty = tty
        self.once = once

    def send(self, letter: bytes, data: bytes = b"") -> None:
        """Send one frame."""
        self.writer.write(FRAME.pack(letter, len(data)) + data)

    async def forward_input(self, terminal: Terminal) -> None:
        """Forward the client's input. If the container reads from one client only, the end of this
        client is the end of the input."""
        try:
            while data := await terminal.stdin.read():
                self.send(b"i", data)
                await self.writer.drain()
            if self.once:
                self.send(b"e")
                await self.writer.drain()
        except ConnectionError:
            terminal.stdin.drop()

    async def run(self, terminal: Terminal, typed: bool) -> None:
        """Connect a terminal in both directions until the container ends."""
        terminal.on_resize(lambda width, height: self.send(b"r", SIZE.pack(height, width)))
        typing = asyncio.create_task(self.forward_input(terminal)) if typed else None
        try:
            while data := await self.reader.read(CHUNK):
                await terminal.write("stdout", data)
        except ConnectionResetError:
            pass
        finally:
            if typing is not None:
                typing.cancel()
                await asyncio.gather(typing, return_exceptions=True)
            self.close()

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(Exception):
            self.writer.close()


def draining(slot: Slot) -> bool:
    """Whether the terminal's last output is still on its way to the log."""
    path = slot.directory / "console"
    return (
        path.exists() and (launch := slot.launch()) is not None and launch.tty and listening(slot)
    )


def listening(slot: Slot) -> bool:
    """Whether the holder still runs."""
    with contextlib.suppress(OSError):
        directory = os.open(slot.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(f"/proc/self/fd/{directory}/console")
                return True
        finally:
            os.close(directory)
    return False


async def connect(slot: Slot) -> Console | None:
    """The console of a container; None if it has none."""
    launch = slot.launch()
    if launch is None or not (launch.stdin or launch.tty):
        return None
    try:
        directory = os.open(slot.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # By way of the open directory: a socket path may have at most 107 bytes.
        reader, writer = await asyncio.open_unix_connection(
            f"/proc/self/fd/{directory}/console", limit=CHUNK
        )
    except OSError:
        return None
    finally:
        os.close(directory)
    return Console(reader, writer, launch.tty, launch.stdin_once)
