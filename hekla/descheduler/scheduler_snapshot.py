"""Fetches the copy of what the scheduler knows, from where the scheduler says it is.  Decision 0374."""

from __future__ import annotations

from hekla.api.kubernetes import core
from hekla.api.names import SNAPSHOT_CONFIG_MAP, SNAPSHOT_PATH, SNAPSHOT_SERVER
from hekla.descheduler.scheduler_copy import SchedulerCopy
from hekla.engine.tape import Frame, Reader, RecordingError
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.http.client import TransportError


class Unasked(Exception):
    """The scheduler cannot be asked; the text says why."""


async def scheduler_copy(client: Client, namespaces: tuple[str, ...]) -> SchedulerCopy:
    """A copy of the scheduler that says in one of the namespaces where it is.  Raises Unasked."""
    address, authority = await _said(client, namespaces)
    host, _, port = address.rpartition(":")
    name = f"the scheduler's snapshot from {address}"
    connection = client.connection.beside(host.strip("[]"), int(port), authority, SNAPSHOT_SERVER)
    frames: list[Frame] = []
    try:
        async with Client(connection, user_agent="hekla-descheduler", pool=1) as scheduler:
            reader = Reader(name)
            async with await scheduler.stream("GET", SNAPSHOT_PATH) as stream:
                async for piece in stream:
                    frames += reader.feed(piece)
        return SchedulerCopy.of(frames, name)
    except ApiError as error:
        raise Unasked(f"{name} is refused: {error.message}") from error
    except (TransportError, TimeoutError) as error:
        raise Unasked(f"{name} does not come: {error or 'it takes too long'}") from error
    except RecordingError as error:
        raise Unasked(str(error)) from error


async def _said(client: Client, namespaces: tuple[str, ...]) -> tuple[str, str]:
    """Address and authority."""
    refused = ""
    for namespace in dict.fromkeys(namespaces):
        try:
            found = await client.get(core.CONFIG_MAP.untyped, SNAPSHOT_CONFIG_MAP, namespace)
        except NotFound:
            continue
        except (ApiError, TransportError) as error:
            refused = refused or str(error)
            continue
        data = found.get("data") or {}
        if ":" in data.get("address", ""):
            return data["address"], data.get("authority", "")
    if refused:
        raise Unasked(f"where the scheduler is cannot be read: {refused}")
    raise Unasked(
        f"no scheduler says where it is (ConfigMap {SNAPSHOT_CONFIG_MAP} in "
        f"{' or '.join(dict.fromkeys(namespaces))}); it does with the flag --snapshot-address"
    )
