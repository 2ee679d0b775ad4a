"""Reading a snapshot of the scheduler: where it is, whether it is the one, and what it answers."""

from __future__ import annotations

from hekla.api.kubernetes import core
from hekla.api.names import SNAPSHOT_CONFIG_MAP, SNAPSHOT_PATH, SNAPSHOT_SERVER
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.connection import Api, Tree
from hekla.engine.tape import Frame, Reader, RecordingError
from hekla.kube.client import Client
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.http.client import TransportError
from hekla.simulator.whatif.copy import ClusterCopy

HOMES = ("volcano-system", "kube-system")
"""Namespaces in which a scheduler says where it is: the chart's, and that of `hekla up`."""


async def snapshot(api: Api, invocation: Invocation) -> ClusterCopy:
    """A copy of what the scheduler knows.  Raises CommandError, which says what would help."""
    said = await _said(api)
    given = invocation.text("scheduler-address")
    host, _, port = (given or said["address"]).rpartition(":")
    if not host or not port.isdigit():
        raise CommandError(f"--scheduler-address {given}: expected host:port")
    connection = api.connection.beside(
        host.strip("[]"), int(port), said["authority"], SNAPSHOT_SERVER
    )
    if api.connection.headers:
        raise CommandError(
            "the scheduler answers users themselves, and this configuration acts as another (as, as-groups)"
        )
    async with Client(connection, user_agent="vcctl", pool=1) as scheduler:
        try:
            stream = await scheduler.stream("GET", SNAPSHOT_PATH)
        except TransportError as error:
            raise CommandError(
                f"the scheduler at {host}:{port} does not answer: {error}",
                f"From outside of its network: kubectl port-forward -n {said['namespace']} pod/{said['pod']} "
                f"{port}, then --scheduler-address=127.0.0.1:{port}",
            ) from error
        except ApiError as error:
            raise CommandError(error.message, _remedy(error)) from error
        async with stream:
            reader = Reader("the scheduler's snapshot")
            frames: list[Frame] = []
            try:
                async for piece in stream:
                    frames += reader.feed(piece)
                return ClusterCopy.of(frames, reader.name)
            except (RecordingError, TransportError) as error:
                raise CommandError(str(error)) from error


def _remedy(error: ApiError) -> str:
    if error.code == 403:
        return f"A ClusterRole with nonResourceURLs [{SNAPSHOT_PATH}] and verbs [get] lets users ask, such as hekla-what-if of the chart."
    if error.code == 401:
        return "The scheduler knows users by tokens, and by certificates where it knows who signs them (--client-ca-file)."
    return ""


async def _said(api: Api) -> Tree:
    """Where a scheduler says that it is."""
    refused = ""
    for namespace in HOMES:
        try:
            found = await api.get(core.CONFIG_MAP.untyped, SNAPSHOT_CONFIG_MAP, namespace)
        except NotFound:
            continue
        except ApiError as error:
            refused = error.message
            continue
        return {**(found.get("data") or {}), "namespace": namespace}
    if refused:
        raise CommandError(refused)
    raise CommandError(
        f"no scheduler says where it is (ConfigMap {SNAPSHOT_CONFIG_MAP} in {' or '.join(HOMES)})",
        "It does with the flag --snapshot-address.",
    )
