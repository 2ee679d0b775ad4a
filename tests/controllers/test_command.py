"""Commands act once, and only for whoever took them."""

from typing import Any

import pytest

from hekla.api import batch, bus, scheduling
from hekla.api.meta import ObjectMeta, OwnerReference
from hekla.controllers.command import CommandController
from hekla.kube.errors import NotFound


class Stub:
    """Caches, events, client and both addressees of one command."""

    def __init__(self, command: bus.Command, *, taken: bool = False) -> None:
        self.commands = self.jobs = self.queues = self
        self.found = command
        self.taken = taken
        self.orders: list[tuple[str, str]] = []
        self.told: list[str] = []

    def get(self, key: str) -> Any:
        return self.found if key == "default/c" else None

    def on_change(self, callback: Any) -> None: ...

    def event(self, obj: Any, type: str, reason: str, message: str) -> None:
        self.told.append(f"{reason}: {message}")

    def command(self, key: str, action: str) -> None:
        self.orders.append((key, action))

    async def delete(self, *arguments: Any, **more: Any) -> None:
        if self.taken:
            raise NotFound(404, "NotFound", "gone")


def aimed(api_version: str, kind: str) -> bus.Command:
    target = OwnerReference(api_version=api_version, kind=kind, name="x", uid="u")
    return bus.Command(
        metadata=ObjectMeta(name="c", namespace="default", uid="1"),
        action="AbortJob",
        target=target,
    )


async def consumed(stub: Any) -> Any:
    await CommandController(stub, stub, stub, jobs=stub, queues=stub).reconcile("default/c")
    return stub


async def test_a_command_reaches_what_it_is_aimed_at() -> None:
    job = await consumed(Stub(aimed(batch.JOB.api_version, "Job")))
    assert job.orders == [("default/x", "AbortJob")]
    assert job.told == [
        "CommandIssued: Start to execute command AbortJob, and clean it up to make sure executed not more than once."
    ]
    queue = await consumed(Stub(aimed(scheduling.QUEUE.api_version, "Queue")))
    assert queue.orders == [("x", "AbortJob")]
    assert (await consumed(Stub(aimed("v1", "Pod")))).orders == []


@pytest.mark.scenario("controllers", 82)
async def test_a_command_that_somebody_else_took_is_not_executed() -> None:
    stub = await consumed(Stub(aimed(batch.JOB.api_version, "Job"), taken=True))
    assert not stub.orders and not stub.told
