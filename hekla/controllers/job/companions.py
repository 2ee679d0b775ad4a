"""Brings the objects that plugins want beside the pods to the API server, and takes them away again."""

from __future__ import annotations

from hekla.api import batch
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, NotFound

from .plugins import Companion, PluginError, plugins_of


async def ensure(client: Client, job: batch.Job, companion: Companion, *, expect: bool) -> None:
    """Create the object, or write it again when it is outdated.  `expect`: it is probably there, so look first."""
    namespace, kind = job.metadata.namespace, companion.kind.untyped
    if not expect:
        try:
            await client.create(kind, companion.make(), namespace)
            return
        except AlreadyExists:
            if companion.outdated is None:
                return
    try:
        existing = await client.get(kind, companion.name, namespace)
    except NotFound:
        await client.create(kind, companion.make(), namespace)
        return
    if companion.outdated is not None and companion.outdated(existing):
        await client.update(kind, {**existing, **companion.make(), "metadata": existing["metadata"]})


async def delete_all(client: Client, job: batch.Job) -> None:
    marked = {key.removeprefix("plugin-") for key in job.status.controlled_resources if key.startswith("plugin-")}
    try:
        plugins = [plugin for plugin in plugins_of(job) if plugin.name in marked]
    except PluginError:
        return  # a plugin that does not exist has made nothing
    for plugin in plugins:
        for companion in plugin.companions(job):
            try:
                await client.delete(companion.kind, companion.name, job.metadata.namespace)
            except NotFound:
                pass
