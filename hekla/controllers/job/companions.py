"""Brings the objects that plugins want beside the pods to the API server, and takes them away
again."""

from __future__ import annotations

from hekla.api import batch
from hekla.controllers.job.plugins import Companion, PluginError, plugins_of
from hekla.controllers.job.plugins.plugin import Tree
from hekla.controllers.job.trouble import Wait
from hekla.kube.client import Client
from hekla.kube.errors import AlreadyExists, NotFound


async def ensure(client: Client, job: batch.Job, companion: Companion, *, expect: bool) -> None:
    """Create the object, or write it again when it is outdated.  `expect`: it is probably there, so
    look first.

    Raises Wait while something of that name belongs to somebody else: often to a job of the same
    name that was deleted just now, whose objects go in a moment.
    """
    namespace, kind = job.metadata.namespace, companion.kind.untyped
    if not expect:
        try:
            await client.create(kind, companion.make(), namespace)
            return
        except AlreadyExists:
            pass
    try:
        existing = await client.get(kind, companion.name, namespace)
    except NotFound:
        await client.create(kind, companion.make(), namespace)
        return
    if not _owned(job, existing):
        raise Wait(
            f"{companion.kind.kind} {companion.name} exists already and does not belong to this job"
        )
    if companion.outdated is not None and companion.outdated(existing):
        await client.update(
            kind, {**existing, **companion.make(), "metadata": existing["metadata"]}
        )


async def delete_all(client: Client, job: batch.Job) -> None:
    """Delete what the job's plugins have made, and nothing else that may bear the same name."""
    marked = {
        key.removeprefix("plugin-")
        for key in job.status.controlled_resources
        if key.startswith("plugin-")
    }
    try:
        plugins = [plugin for plugin in plugins_of(job) if plugin.name in marked]
    except PluginError:
        return  # a plugin that does not exist has made nothing
    for plugin in plugins:
        for companion in plugin.companions(job):
            try:
                existing = await client.get(
                    companion.kind.untyped, companion.name, job.metadata.namespace
                )
                if _owned(job, existing):
                    uid = existing["metadata"]["uid"]
                    await client.delete(
                        companion.kind, companion.name, job.metadata.namespace, uid=uid
                    )
            except NotFound:
                pass


def _owned(job: batch.Job, existing: Tree) -> bool:
    return any(
        owner.get("uid") == job.metadata.uid
        for owner in existing["metadata"].get("ownerReferences") or ()
    )
