"""Commands: consumed once, then carried out (reference: controllers 2.4, 4.1).

A command is deleted before its action begins, so it acts at most once even if a process dies in
between.
"""

from __future__ import annotations

from typing import Any, Protocol

from hekla.api import batch, bus, scheduling
from hekla.api.meta import split_key
from hekla.controllers.caches import Caches
from hekla.controllers.events import Events
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import NotFound


class Addressee(Protocol):
    """A controller that commands are sent to."""

    def command(self, key: str, action: str) -> None: ...


class CommandController(Controller):
    """Hands each command to the controller of the object that it names."""

    name = "command-controller"

    def __init__(
        self,
        client: Client,
        caches: Caches,
        events: Events,
        *,
        jobs: Addressee | None = None,
        queues: Addressee | None = None,
    ) -> None:
        super().__init__(caches.commands, caches.jobs, caches.queues)
        self._client = client
        self._caches = caches
        self._events = events
        self._jobs = jobs
        self._queues = queues
        self.enqueue(caches.commands)

    async def reconcile(self, key: str) -> float | None:
        command = self._caches.commands.get(key)
        if command is None or command.metadata.deletion_timestamp or command.target is None:
            return None
        namespace, name = split_key(key)
        target = (command.target.api_version, command.target.kind)
        if target == (batch.JOB.api_version, batch.JOB.kind):
            addressee, aim = self._jobs, f"{namespace}/{command.target.name}"
        elif target == (scheduling.QUEUE.api_version, scheduling.QUEUE.kind):
            addressee, aim = self._queues, command.target.name
        else:
            return None
        if addressee is None:
            return None
        try:
            await self._client.delete(bus.COMMAND, name, namespace, uid=command.metadata.uid)
        except NotFound:
            return None  # somebody else took it
        if addressee is self._jobs:
            self._events.event(
                self._object(aim, command, namespace), "Normal", "CommandIssued", _consumed(command)
            )
        addressee.command(aim, command.action)
        return None

    def _object(self, aim: str, command: bus.Command, namespace: str) -> Any:
        job = self._caches.jobs.get(aim)
        if job is not None:
            return job
        assert command.target is not None
        metadata = {"name": command.target.name, "namespace": namespace, "uid": command.target.uid}
        return {"apiVersion": batch.JOB.api_version, "kind": batch.JOB.kind, "metadata": metadata}


def _consumed(command: bus.Command) -> str:
    return f"Start to execute command {command.action}, and clean it up to make sure executed not more than once."
