"""exec and attach: run a command inside a container, or attach to the container itself, for a
remote terminal."""

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
from hekla.local.kubelet.runtime.probes import COMMAND_START_CHECKS, SPAWNER
from hekla.local.kubelet.runtime.runtime import children_of
from hekla.local.kubelet.runtime.spawner import ERRORS
from hekla.local.kubelet.streaming.remote import ExecOptions, Terminal, exited, failed
from hekla.local.kubelet.streaming.wire import Lost

log = logging.getLogger("kubelet.streams")

CHUNK = 64 * 1024
CANNOT_RUN_EXIT_CODE = 126
"""The exit code of a process that entered the container and did not find the command."""


class CannotExecute(Exception):
    """The command was not run."""


async def process_of(slot: Slot) -> int:
    """The pid of the container's main process; 0 if it does not run."""
    claim = slot.claim()
    if claim is None:
        return 0
    for _ in range(COMMAND_START_CHECKS):
        if slot.exit() is not None or not claim.alive():
            return 0
        if pids := children_of(claim.pid):
            return pids[0]
        await asyncio.sleep(0.01)  # the shim has started, the command has not yet
    return 0


async def execute(slot: Slot, options: ExecOptions, terminal: Terminal) -> None:
    """Run a command in the container of a slot until it ends, and send the result to the terminal."""
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


def join_command(pid: int, slot: Slot, *command: str, tty: bool = False) -> list[str]:
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
    """A process that enters a container, and a descriptor from which to read why it could not run
    the command."""
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


def read_start_error(errors: int) -> str:
    """Why the command was not run; "" if it was run."""
    os.set_blocking(errors, False)
    try:
        return os.read(errors, CHUNK).decode(errors="replace").strip()
    except BlockingIOError:
        return ""


async def with_pipes(pid: int, slot: Slot, options: ExecOptions, terminal: Terminal) -> int:
    """Run a command without a terminal: up to three pipes. Returns the exit code.

    A command without a terminal gets no hangup signal, so when its client has gone it is killed
    with all its processes.
    """
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    process, errors = await start(
        join_command(pid, slot, *options.command),
        limit=CHUNK,
        stdin=pipe if options.stdin else nothing,
        stdout=pipe if options.stdout else nothing,
        stderr=pipe if options.stderr else nothing,
    )
    typing = (
        asyncio.create_task(forward_input(terminal, process.stdin))
        if process.stdin is not None
        else None
    )
    shown = [
        asyncio.create_task(forward_output(reader, role, terminal))
        for role, reader in (("stdout", process.stdout), ("stderr", process.stderr))
        if reader is not None
    ]
    try:
        await asyncio.gather(*shown)
        code = await process.wait()
        if code == CANNOT_RUN_EXIT_CODE and (why := read_start_error(errors)):
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
    """Kill a command whose client has gone, with its whole session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def close_pipes(process: asyncio.subprocess.Process) -> None:
    """Close the pipes of a process."""
    transport = getattr(process, "_transport", None)
    for number in (0, 1, 2):
        with contextlib.suppress(Exception):
            if transport is not None and (pipe := transport.get_pipe_transport(number)) is not None:
                pipe.close()


async def forward_input(terminal: Terminal, writer: asyncio.StreamWriter) -> None:
    """Forward the client's input; its end closes the command's standard input."""
    try:
        while data := await terminal.stdin.read():
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # the command has closed its standard input
    finally:
        terminal.stdin.drop()
        writer.close()


async def forward_output(reader: asyncio.StreamReader, role: str, terminal: Terminal) -> None:
    """Forward one output stream to the terminal."""
    while data := await reader.read(CHUNK):
        await terminal.write(role, data)


def set_size(descriptor: int, width: int, height: int) -> None:
    """Set the size of a terminal, in characters."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


async def with_terminal(pid: int, slot: Slot, options: ExecOptions, terminal: Terminal) -> int:
    """Run a command with a terminal in the container. Returns the exit code."""
    ours, theirs = pty.openpty()
    try:
        process, errors = await start(
            join_command(pid, slot, *options.command, tty=True),
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
    typing = (
        asyncio.create_task(forward_input_to_terminal(terminal, ours)) if options.stdin else None
    )
    ended = asyncio.create_task(process.wait())
    try:
        async for data in terminal_output(ours, ended):
            await terminal.write("stdout", data)
        code = await ended
        if code == CANNOT_RUN_EXIT_CODE and (why := read_start_error(errors)):
            raise CannotExecute(why)
    finally:
        os.close(errors)
        terminal.on_resize(lambda width, height: None)
        if typing is not None:
            typing.cancel()
            await asyncio.gather(typing, return_exceptions=True)
        os.close(ours)  # closing sends SIGHUP to a command that still runs
    return code if code >= 0 else 128 - code


def resolve(ready: asyncio.Future[None]) -> None:
    """Resolve a future unless it is done."""
    if not ready.done():
        ready.set_result(None)


async def readable(descriptor: int, or_else: asyncio.Future[Any] | None = None) -> None:
    """Wait until a descriptor is readable or a future is done."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, resolve, ready)
    try:
        await asyncio.wait(
            {ready} if or_else is None else {ready, or_else}, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        loop.remove_reader(descriptor)


async def writable(descriptor: int) -> None:
    """Wait until a descriptor is writable."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(descriptor, resolve, ready)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)


async def terminal_output(descriptor: int, ended: asyncio.Future[int]) -> AsyncIterator[bytes]:
    """The output of a terminal, until all its users have closed it, or the command has ended and
    nothing is left to read."""
    while True:
        try:
            data = os.read(descriptor, CHUNK)
        except BlockingIOError:
            if ended.done():
                return
            await readable(descriptor, ended)
            continue
        except OSError:
            return  # all users have closed the other end
        if not data:
            return
        yield data


async def forward_input_to_terminal(terminal: Terminal, descriptor: int) -> None:
    """Forward input to a terminal. Its end is sent as ^D, because a terminal cannot be half closed."""
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
