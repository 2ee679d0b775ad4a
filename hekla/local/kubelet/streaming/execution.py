"""exec and attach: a command run inside a container, or the container itself, for a terminal
somewhere else."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator
from typing import Any

from hekla.local.kubelet.records import Slot
from hekla.local.kubelet.runtime.probes import SPAWNER, STARTING
from hekla.local.kubelet.runtime.runtime import children_of
from hekla.local.kubelet.runtime.spawner import ERRORS
from hekla.local.kubelet.streaming.remote import ExecOptions, Terminal, exited, failed
from hekla.local.kubelet.streaming.wire import Lost

log = logging.getLogger("agent.streams")

PIECE = 64 * 1024
NOT_RUN = 126
"""The exit code of a process that has joined a container and found no such command there."""


class CannotExecute(Exception):
    """The command was never run."""


async def process_of(slot: Slot) -> int:
    """The pid of the container's own process; 0 when it does not run."""
    claim = slot.claim()
    if claim is None:
        return 0
    for _ in range(STARTING):
        if slot.exit() is not None or not claim.alive():
            return 0
        if pids := children_of(claim.pid):
            return pids[0]
        await asyncio.sleep(0.01)  # its shim has started, the command itself has not yet
    return 0


async def execute(slot: Slot, options: ExecOptions, terminal: Terminal) -> None:
    """Runs a command in the container of a slot until it ends; the terminal learns how."""
    try:
        await terminal.ready()
        pid = await process_of(slot)
        if not pid:
            await terminal.finish(failed(f'container not found ("{slot.container}")'))
            return
        run = with_terminal if options.tty else with_pipes
        await terminal.finish(exited(await run(pid, slot, options, terminal)))
    except Lost:
        log.debug("%s: the client of an exec has gone", slot.directory)
    except CannotExecute as error:
        await terminal.finish(
            failed(f"error executing command in container: failed to exec in container: {error}")
        )
    except OSError as error:
        log.warning("%s: exec: %s", slot.directory, error)
        await terminal.finish(
            failed(f"error executing command in container: {error.strerror or error}")
        )


def joining(pid: int, slot: Slot, *command: str, tty: bool = False) -> list[str]:
    """The command line that runs a command in a container."""
    return [
        sys.executable,
        "-I",
        "-S",
        str(SPAWNER),
        "join-tty" if tty else "join",
        str(pid),
        str(slot.directory),
        *command,
    ]


async def start(command: list[str], **streams: Any) -> tuple[asyncio.subprocess.Process, int]:
    """A process that joins a container, and where it says why it could not run the command."""
    hears, says = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            start_new_session=True,
            pass_fds=(says,),
            env={**os.environ, ERRORS: str(says)},
            **streams,
        )
    except BaseException:
        os.close(hears)
        raise
    finally:
        os.close(says)
    return process, hears


def never_ran(errors: int) -> str:
    """Why there was nothing to run; "" when the command was run."""
    os.set_blocking(errors, False)
    try:
        return os.read(errors, PIECE).decode(errors="replace").strip()
    except BlockingIOError:
        return ""


async def with_pipes(pid: int, slot: Slot, options: ExecOptions, terminal: Terminal) -> int:
    """Without a terminal in the container: up to three pipes.  Gives the exit code.

    Nobody hangs up on a command without a terminal: when its client has gone it is ended, with what
    it has started.
    """
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process, errors = await start(
        joining(pid, slot, *options.command),
        limit=PIECE,
        stdin=pipe if options.stdin else nothing,
        stdout=pipe if options.stdout else nothing,
        stderr=pipe if options.stderr else nothing,
    )
    typing = (
        asyncio.create_task(type_into(terminal, process.stdin))
        if process.stdin is not None
        else None
    )
    shown = [
        asyncio.create_task(show(reader, role, terminal))
        for role, reader in (("stdout", process.stdout), ("stderr", process.stderr))
        if reader is not None
    ]
    try:
        await asyncio.gather(*shown)
        code = await process.wait()
        if code == NOT_RUN and (why := never_ran(errors)):
            raise CannotExecute(why)
    except (asyncio.CancelledError, Lost):
        end(process)
        raise
    finally:
        os.close(errors)
        for task in (typing, *shown):
            if task is not None:
                task.cancel()
        close_pipes(process)
    return code if code >= 0 else 128 - code


def end(process: asyncio.subprocess.Process) -> None:
    """Ends a command whose client has gone; the session that was made for it goes as a whole."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def close_pipes(process: asyncio.subprocess.Process) -> None:
    """Lets go of the pipes of a process; what writes to them learns it."""
    transport = getattr(process, "_transport", None)
    for number in (0, 1, 2):
        with contextlib.suppress(Exception):
            if transport is not None and (pipe := transport.get_pipe_transport(number)) is not None:
                pipe.close()


async def type_into(terminal: Terminal, writer: asyncio.StreamWriter) -> None:
    """Hands on what the client types; its end closes the command's standard input."""
    try:
        while data := await terminal.stdin.read():
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # the command has closed its standard input, which is its right
    finally:
        terminal.stdin.drop()
        writer.close()


async def show(reader: asyncio.StreamReader, role: str, terminal: Terminal) -> None:
    while data := await reader.read(PIECE):
        await terminal.write(role, data)


def set_size(descriptor: int, width: int, height: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


async def with_terminal(pid: int, slot: Slot, options: ExecOptions, terminal: Terminal) -> int:
    """With a terminal in the container, whose other end we hold."""
    ours, theirs = pty.openpty()
    try:
        process, errors = await start(
            joining(pid, slot, *options.command, tty=True),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    terminal.on_resize(lambda width, height: set_size(ours, width, height))
    os.set_blocking(ours, False)
    typing = asyncio.create_task(type_at(terminal, ours)) if options.stdin else None
    ended = asyncio.create_task(process.wait())
    try:
        async for data in screen(ours, ended):
            await terminal.write("stdout", data)
        code = await ended
        if code == NOT_RUN and (why := never_ran(errors)):
            raise CannotExecute(why)
    finally:
        os.close(errors)
        terminal.on_resize(lambda width, height: None)
        if typing is not None:
            typing.cancel()
            await asyncio.gather(typing, return_exceptions=True)
        os.close(ours)  # a command that still runs is hung up on
    return code if code >= 0 else 128 - code


def settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def readable(descriptor: int, or_else: asyncio.Future[Any] | None = None) -> None:
    """Waits until a descriptor has something to read, or something else is done."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, settle, ready)
    try:
        await asyncio.wait(
            {ready} if or_else is None else {ready, or_else}, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        loop.remove_reader(descriptor)


async def writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(descriptor, settle, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


async def screen(descriptor: int, ended: asyncio.Future[int]) -> AsyncIterator[bytes]:
    """What a terminal shows, until all who hold it are gone or the command has ended and nothing is
    left to read."""
    while True:
        try:
            data = os.read(descriptor, PIECE)
        except BlockingIOError:
            if ended.done():
                return
            await readable(descriptor, ended)
            continue
        except OSError:
            return  # nobody holds the other end any more
        if not data:
            return
        yield data


async def type_at(terminal: Terminal, descriptor: int) -> None:
    """Hands on what is typed at a terminal.  The end of the typing is ^D, as there is no
    half-closed terminal."""
    while True:
        data = await terminal.stdin.read()
        left = memoryview(data or b"\x04")
        while left:
            try:
                left = left[os.write(descriptor, left) :]
            except BlockingIOError:
                await writable(descriptor)
            except OSError:
                terminal.stdin.drop()
                return
        if not data:
            return
