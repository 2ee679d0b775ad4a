"""What the screen says of the colocation agent when a cluster has come up with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hekla.kube.client import Client

READY = "ColocationReady"
"""The node's condition by which the agent says what it can do."""


async def describe_agent(client: Client) -> tuple[str, str]:
    """(ok or -, what of colocation this machine goes without).  Raises ApiError."""
    from hekla.api.kubernetes.core import NODE

    for node in (await client.list(NODE)).items:
        if condition := next((one for one in node.status.conditions if one.type == READY), None):
            how = "" if condition.reason == "EverythingIsThere" else f"without {condition.message}"
            return ("ok" if condition.status == "True" else "-"), how
    return "-", "the agent has not said what it can do; see its log"
