"""Requests begin in the step that read them; what they wait for may be the same."""

from __future__ import annotations

import asyncio

from hekla.local.apiserver.server import eager


async def test_two_requests_that_begin_by_waiting_for_the_same_write_both_go_on():
    loop = asyncio.get_running_loop()
    write = loop.create_future()

    async def request():
        return await write

    answers = [eager(request(), loop) for _ in range(3)]
    await asyncio.sleep(0)
    write.set_result("stored")

    assert await asyncio.gather(*answers) == ["stored"] * 3


async def test_a_write_that_was_carried_out_before_the_task_began():
    loop = asyncio.get_running_loop()
    write = loop.create_future()

    async def request():
        return await write

    answers = [eager(request(), loop) for _ in range(2)]
    write.set_result("stored")

    assert await asyncio.gather(*answers) == ["stored"] * 2


async def test_what_never_waits_is_answered_at_once():
    async def request():
        return "read"

    assert eager(request(), asyncio.get_running_loop()) == "read"
