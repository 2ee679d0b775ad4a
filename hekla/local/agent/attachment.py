"""attach: what a running container writes from now on, and what is typed to it where it has an open standard input."""

from __future__ import annotations

import asyncio
import logging

from hekla.local.agent import console
from hekla.local.agent.execution import process_of
from hekla.local.agent.interleaving import read
from hekla.local.agent.logbook import Clock, Options
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
    """Where both streams share one file (decision 0052) both are shown as standard output."""

    def running() -> bool:
        claim = slot.claim()
        return slot.exit() is None and claim is not None and claim.alive()

    async def show(role: str, stream: str) -> None:
        async for data in read(slot, Options(follow=True, tail=0, stream=stream), clock, running):
            await terminal.write(role, data)

    if not slot.split:
        if wish.stdout or wish.stderr:
            await show("stdout" if wish.stdout else "stderr", "All")
        return
    roles = [role for role, wanted in (("stdout", wish.stdout), ("stderr", wish.stderr)) if wanted]
    both = [asyncio.create_task(show(role, role.capitalize())) for role in roles]
    try:
        await asyncio.gather(*both)
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
