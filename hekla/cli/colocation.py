"""What the screen says of the colocation agent when a cluster has come up with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hekla.kube.client import Client


async def describe_agent(client: Client) -> tuple[str, str]:
    """(ok or -, what of colocation this machine goes without).  Raises ApiError."""
    from hekla.agent.doctor import ALL, CONDITION
    from hekla.api.kubernetes.core import NODE

    for node in (await client.list(NODE)).items:
        stated = (one for one in node.status.conditions if one.type == CONDITION)
        if condition := next(stated, None):
            how = "" if condition.reason == ALL else f"without {condition.message}"
            return ("ok" if condition.status == "True" else "-"), how
    return "-", "the agent has not said what it can do; see its log"
