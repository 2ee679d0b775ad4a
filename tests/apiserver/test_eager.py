"""Requests start in the callback that read them, also if several wait for the same write."""

from __future__ import annotations

import asyncio

import pytest

from hekla.local.apiserver.request.eager import run_eagerly


async def test_two_requests_that_begin_by_waiting_for_the_same_write_both_go_on():
    loop = asyncio.get_running_loop()
    write = loop.create_future()

    async def request():
        return await write

    answers = [run_eagerly(request(), loop) for _ in range(3)]
    await asyncio.sleep(0)
    write.set_result("stored")

    assert await asyncio.gather(*answers) == ["stored"] * 3


async def test_a_write_that_was_carried_out_before_the_task_began():
    loop = asyncio.get_running_loop()
    write = loop.create_future()

    async def request():
        return await write

    answers = [run_eagerly(request(), loop) for _ in range(2)]
    write.set_result("stored")

    assert await asyncio.gather(*answers) == ["stored"] * 2


async def test_what_never_waits_is_answered_at_once():
    async def request():
        return "read"

    assert run_eagerly(request(), asyncio.get_running_loop()) == "read"


async def test_what_waits_a_second_time_is_a_task_from_there_on():
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    tasks = []

    async def request():
        await first
        tasks.append(asyncio.current_task())
        found = await second
        tasks.append(asyncio.current_task())
        await asyncio.sleep(0)
        return found

    answer = run_eagerly(request(), loop)
    first.set_result(None)
    await asyncio.sleep(0)
    second.set_result("stored")

    assert await answer == "stored"
    assert tasks[0] is None and tasks[1] is not None


async def test_what_is_called_off_leaves_nobody_waiting():
    loop = asyncio.get_running_loop()
    write = loop.create_future()

    async def request():
        await write

    answer = run_eagerly(request(), loop)
    write.cancel()

    async with asyncio.timeout(5):
        with pytest.raises(asyncio.CancelledError):
            await asyncio.shield(answer)
    assert answer.cancelled()


@pytest.mark.parametrize("again", [False, True])
async def test_what_goes_wrong_behind_a_wait_is_the_answers_error(again: bool):
    loop = asyncio.get_running_loop()
    write = loop.create_future()

    async def request():
        try:
            await write
        finally:
            if again:
                await asyncio.sleep(0)

    answer = run_eagerly(request(), loop)
    write.set_exception(OSError("no room"))

    with pytest.raises(OSError, match="no room"):
        await answer
