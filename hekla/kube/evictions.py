"""Whether an API server takes evictions of pods, and in which version: its list of resources says it."""

from __future__ import annotations

import msgspec

from hekla.kube.client import Client
from hekla.kube.errors import ApiError

PATH = "/api/v1"


class Resource(msgspec.Struct):
    """What the server serves below a version; group and version are stated where they are others."""

    name: str = ""
    kind: str = ""
    group: str = ""
    version: str = ""


class Resources(msgspec.Struct):
    """The list of them."""

    resources: list[Resource] | None = None


async def eviction_version(client: Client) -> str:
    """In which version the API server takes evictions; "" where it takes none.  Raises ApiError, also
    for an answer that is no such list, and TransportError."""
    answer = await client.request("GET", PATH)
    try:
        served = msgspec.json.decode(answer.body, type=Resources)
    except msgspec.DecodeError as error:
        raise ApiError(502, "BadGateway", f"{PATH} is no list of resources: {error}") from None
    for one in served.resources or ():
        if one.name == "pods/eviction" and one.kind == "Eviction":
            return f"{one.group or 'policy'}/{one.version or 'v1'}"
    return ""
