"""Requests without a task: they run in the callback that read them, and most end there.

Python 3.12 has eager tasks; this does the same for 3.11.  Decision 0180.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def run_eagerly(
    work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop
) -> T | asyncio.Future[T]:
    """Run a coroutine up to its first wait in the current callback, and continue it in the callback
    that ends the wait.  Only a coroutine that waits a second time becomes a task.

    Reads and refusals never wait, and most writes wait only for the disk.  A task for each would
    cost more than a read.
    """
    try:
        waiting = work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # StopIteration does not say of what
    if not asyncio.isfuture(waiting):
        return loop.create_task(_go_on(work, waiting))
    # The mark of an `await` that no task has taken up yet: with it, a second request that begins by
    # waiting for the same write would fail.
    waiting._asyncio_future_blocking = False
    answer: asyncio.Future[T] = loop.create_future()

    def resumed(_: asyncio.Future[Any]) -> None:
        try:
            again = work.send(None)  # the coroutine asks the future itself what came of it
        except StopIteration as done:
            if not answer.done():
                answer.set_result(done.value)
        except asyncio.CancelledError:
            answer.cancel()
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if asyncio.isfuture(again):
                again._asyncio_future_blocking = False
            loop.create_task(_go_on(work, again)).add_done_callback(
                lambda task: _hand_on(task, answer)
            )

    waiting.add_done_callback(resumed)
    return answer


def _hand_on(task: asyncio.Task[T], answer: asyncio.Future[T]) -> None:
    if answer.done():
        return
    if task.cancelled():
        answer.cancel()
    elif (error := task.exception()) is not None:
        answer.set_exception(error)
    else:
        answer.set_result(task.result())


async def _go_on(work: Coroutine[Any, Any, T], waiting: Any) -> T:
    return await _driven(work, waiting)


@types.coroutine
def _driven(work: Coroutine[Any, Any, T], waiting: Any) -> Generator[Any, Any, T]:
    """Drive a started coroutine to its end inside a task."""
    if asyncio.isfuture(waiting):
        waiting._asyncio_future_blocking = True  # as a task wants it; see `run_eagerly`
    try:
        while True:
            try:
                value = yield waiting
            except BaseException as error:
                waiting = work.throw(error)
            else:
                waiting = work.send(value)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # as above
