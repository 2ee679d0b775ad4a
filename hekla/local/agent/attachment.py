"""attach: what a running container writes from now on, and what is typed to it where it has an open standard input."""

from __future__ import annotations

import asyncio
import logging

from hekla.local.agent import console
from hekla.local.agent.execution import process_of
from hekla.local.agent.logbook import Clock, Options, read
from hekla.local.agent.records import Slot
from hekla.local.agent.remote import SUCCESS, Terminal, Wish, failed
from hekla.local.agent.wire import Lost

log = logging.getLogger("agent.streams")


async def attach(slot: Slot, wish: Wish, terminal: Terminal, clock: Clock) -> None:
    """Shows the container to a terminal until one of them ends."""
    try:
        await terminal.ready()
        if not await process_of(slot):
            await terminal.finish(failed(f'container not found ("{slot.container}")'))
            return
        held = await console.connect(slot)
        if held is not None and held.tty:
            await held.carry(terminal, wish.stdin)
            await terminal.finish(SUCCESS)
            return
        typing = asyncio.create_task(held.type(terminal)) if held is not None and wish.stdin else None
        try:
            await show_log(slot, wish, terminal, clock)
        finally:
            if typing is not None:
                typing.cancel()
                await asyncio.gather(typing, return_exceptions=True)
            if held is not None:
                held.close()
        await terminal.finish(SUCCESS)
    except Lost:
        log.debug("%s: the client of an attach has gone", slot.directory)


async def show_log(slot: Slot, wish: Wish, terminal: Terminal, clock: Clock) -> None:
    """Both streams share one file (decision 0052), so both are shown as standard output."""
    role = "stdout" if wish.stdout else "stderr"
    options = Options(follow=True, tail=0)

    def running() -> bool:
        claim = slot.claim()
        return slot.exit() is None and claim is not None and claim.alive()

    async for data in read(slot, options, clock, running):
        if wish.stdout or wish.stderr:
            await terminal.write(role, data)
