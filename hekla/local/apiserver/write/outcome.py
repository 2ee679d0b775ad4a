"""The end of a write: on the disk, and in the response."""

from __future__ import annotations

from collections.abc import Awaitable

from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.forms import wanted
from hekla.local.apiserver.request.status import internal
from hekla.local.apiserver.storage.managed_fields import Ownership
from hekla.local.apiserver.storage.store import Row, WriteLost, decode, encode


async def committed(done: Awaitable[Row]) -> Row:
    """Wait until an accepted write is on the disk.  Raises Refusal if the disk refuses it."""
    try:
        return await done
    except WriteLost as lost:
        raise internal(str(lost)) from lost


def response_with(call: Call, status: int, row: Row | None, tree: Json) -> Response:
    """The response that shows a written object.  Under dry run there is no row, and `tree` is the
    object."""
    form = wanted(call.request.headers, call.request.option("includeObject"))
    if row is None:
        return call.respond(status, encode(form.dry(call.resource, tree)))
    return call.respond(status, form.object(call.resource, row))


def with_managed_fields(tree: Json, ownership: Ownership) -> Json:
    """The object with its managedFields."""
    owners, stamps = ownership
    if owners is None:
        return tree
    return {
        **tree,
        "metadata": {**tree["metadata"], "managedFields": decode(owners.render(stamps))},
    }
