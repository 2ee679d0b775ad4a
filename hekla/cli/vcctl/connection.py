"""Running a command against the API server: configuration first, then the command, then its errors
in words.

The configuration is read before a command looks at its own flags, so a broken kubeconfig is
reported in preference to a missing name.  Reference: cli 1.3.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from hekla.api.kinds import Kind
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.parsing import near_names
from hekla.kube.client import Client
from hekla.kube.connection.config import (
    DEFAULT_SERVER,
    ConfigError,
    Connection,
    NoConfiguration,
    load,
)
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.http.client import TransportError

if TYPE_CHECKING:
    from hekla.local.cluster.cluster import Cluster

Tree = dict[str, Any]
Api = Client
Action = Callable[[Api, Invocation], Awaitable[int | None]]


def connected(invocation: Invocation, action: Action) -> int:
    """Run the action with a client; errors become a CommandError."""
    logging.basicConfig(level=logging.ERROR)
    try:
        return asyncio.run(
            _run(
                configured(invocation.text("kubeconfig"), invocation.text("master")),
                invocation,
                action,
            )
        )
    except (ConfigError, TransportError) as error:
        raise CommandError(str(error)) from error
    except ApiError as error:
        raise CommandError(error.message) from error


def configured(kubeconfig: str, master: str) -> Connection:
    """The configuration of flags and environment; if there is none, the running cluster of `hekla
    up`, if it is the only one."""
    if not kubeconfig and not master and not os.environ.get("KUBECONFIG"):
        try:
            return load()
        except NoConfiguration:
            if (cluster := the_running_cluster()) is not None:
                return load(str(cluster.kubeconfig))
    return load(kubeconfig or None, master=master, default_server=DEFAULT_SERVER)


def the_running_cluster() -> Cluster | None:
    """The only cluster of this user that runs, mentioned on stderr; None if there is none.  Raises
    CommandError if there are several."""
    from hekla.local.cluster.cluster import clusters
    from hekla.local.cluster.supervisor import running

    found = [cluster for cluster in clusters() if running(cluster) is not None]
    if len(found) > 1:
        named = "".join(f"\n  export KUBECONFIG={cluster.kubeconfig}" for cluster in found)
        raise CommandError(
            "no KUBECONFIG is set, and several clusters run here; choose one:" + named
        )
    for cluster in found:
        print(
            f'No KUBECONFIG is set: this is the cluster "{cluster.name}" of `hekla up`.',
            file=sys.stderr,
        )
        print(f"  export KUBECONFIG={cluster.kubeconfig}", file=sys.stderr)
    return found[0] if found else None


async def _run(connection: Connection, invocation: Invocation, action: Action) -> int:
    async with Client(connection, user_agent="vcctl", pool=8) as api:
        return await action(api, invocation) or 0


async def find(api: Api, kind: Kind[Tree], name: str, namespace: str | None = None) -> Tree:
    """The object; if it does not exist, the error has the server's message and the most similar
    names."""
    try:
        return await api.get(kind, name, namespace)
    except NotFound as error:
        raise CommandError(error.message, await _nearest(api, kind, name, namespace)) from error


async def _nearest(api: Api, kind: Kind[Tree], name: str, namespace: str | None) -> str:
    try:
        listing = await api.list(kind, namespace)
    except (ApiError, TransportError):
        return ""
    near = near_names(name, [item["metadata"]["name"] for item in listing.items])[:3]
    return f"Did you mean {' or '.join(near)}?" if near else ""


def name_of(invocation: Invocation, missing: str) -> str:
    """The name that the command needs: from its flag or, for Hekla's own commands, from its
    argument."""
    name = invocation.text("name")
    if not name and invocation.command.arguments and invocation.arguments:
        name = invocation.arguments[0]
    if not name:
        raise CommandError(missing)
    return name
