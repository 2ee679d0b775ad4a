"""attach: the output of a running container from now on, and input if it has an open standard
input."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from hekla.local.kubelet.records import Slot
from hekla.local.kubelet.runtime.interleaved_logs import read
from hekla.local.kubelet.runtime.logs import Clock, Options
from hekla.local.kubelet.streaming import console
from hekla.local.kubelet.streaming.execution import process_of
from hekla.local.kubelet.streaming.remote import SUCCESS, ExecOptions, Terminal, failed
from hekla.local.kubelet.streaming.wire import Lost

log = logging.getLogger("kubelet.streams")


async def attach(slot: Slot, options: ExecOptions, terminal: Terminal, clock: Clock) -> None:
    """Connect a terminal to the container until one of them ends."""
    try:
        await terminal.ready()
        if not await process_of(slot):
            await terminal.finish(failed(f'container not found ("{slot.container}")'))
            return
        held = await console.connect(slot)
        if held is not None and held.tty:
            await held.run(terminal, options.stdin)
            await terminal.finish(SUCCESS)
            return
        # Tasks start in this order, so the ends of the logs are known before any input that the
        # container may answer.
        tasks = [asyncio.create_task(each) for each in log_streams(slot, options, terminal, clock)]
        shown = asyncio.gather(*tasks)
        if held is not None and options.stdin:
            tasks.append(asyncio.create_task(held.forward_input(terminal)))
        try:
            await shown
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if held is not None:
                held.close()
        await terminal.finish(SUCCESS)
    except Lost:
        log.debug("%s: the client of an attach has gone", slot.directory)


def log_streams(
    slot: Slot, options: ExecOptions, terminal: Terminal, clock: Clock
) -> list[Coroutine[Any, Any, None]]:
    """A coroutine for each requested log that sends it from its end on. If both streams share one
    file (decision 0052) it is sent as standard output."""

    def running() -> bool:
        claim = slot.claim()
        return slot.exit() is None and claim is not None and claim.alive()

    async def show(role: str, stream: str) -> None:
        async for data in read(slot, Options(follow=True, tail=0, stream=stream), clock, running):
            await terminal.write(role, data)

    roles = [
        role for role, wanted in (("stdout", options.stdout), ("stderr", options.stderr)) if wanted
    ]
    if slot.split:
        return [show(role, role.capitalize()) for role in roles]
    return [show(role, "All") for role in roles[:1]]
