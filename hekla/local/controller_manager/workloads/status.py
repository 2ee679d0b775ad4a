"""Writing the status of a workload."""

from __future__ import annotations

from contextlib import suppress

from hekla.api.kinds import Kind
from hekla.api.trees import Json
from hekla.kube.client import Client
from hekla.kube.errors import Conflict, NotFound


async def write_status(client: Client, kind: Kind[Json], owner: Json, status: Json) -> None:
    """Replace the status of an owner, unless the owner has changed or is gone."""
    # the watch shows what changed, which queues another reconcile
    with suppress(NotFound, Conflict):
        await client.update_status(kind, {**owner, "status": status})
