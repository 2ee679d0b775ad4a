"""Running a command against the API server: configuration first, then the command, then its errors in words.

The configuration is read before a command looks at its own flags, so a broken kubeconfig is reported in preference to a
missing name.  Reference: cli 1.3.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from hekla.api.kinds import Kind
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.parsing import near_names
from hekla.kube.client import Client
from hekla.kube.config import DEFAULT_SERVER, ConfigError, Connection, load
from hekla.kube.errors import ApiError, NotFound
from hekla.kube.http.client import TransportError

Tree = dict[str, Any]
Api = Client
Action = Callable[[Api, Invocation], Awaitable[int | None]]


def connected(invocation: Invocation, action: Action) -> int:
    """Run the action with a client; what goes wrong becomes a CommandError."""
    logging.basicConfig(level=logging.ERROR)
    try:
        connection = load(invocation.text("kubeconfig") or None, master=invocation.text("master"), default_server=DEFAULT_SERVER)
        return asyncio.run(_run(connection, invocation, action))
    except (ConfigError, TransportError) as error:
        raise CommandError(str(error)) from error
    except ApiError as error:
        raise CommandError(error.message) from error


async def _run(connection: Connection, invocation: Invocation, action: Action) -> int:
    async with Client(connection, user_agent="vcctl", pool=8) as api:
        return await action(api, invocation) or 0


async def find(api: Api, kind: Kind[Tree], name: str, namespace: str | None = None) -> Tree:
    """The object; when it is not there, the server's words and the names that are nearest to it."""
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
    """The name that the command needs, from its flag or, for Hekla's own commands, as a word of its own."""
    name = invocation.text("name")
    if not name and invocation.command.arguments and invocation.arguments:
        name = invocation.arguments[0]
    if not name:
        raise CommandError(missing)
    return name


def print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        print(line)
