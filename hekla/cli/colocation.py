"""What `hekla up --colocation` does to the cluster itself, beside starting the agent: its node takes
part, and the screen says what of it this machine lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hekla.kube.client import Client

READY = "ColocationReady"
"""The node's condition by which the agent says what it can do."""


async def take_part(client: Client) -> tuple[str, str]:
    """Label the real node, unless it says itself whether it takes part.  Returns (ok or -, how it
    is).  Raises ApiError."""
    from hekla.api import names
    from hekla.api.kubernetes.core import NODE

    labels = (names.COLOCATION, names.OVERSUBSCRIPTION)
    for node in (await client.list(NODE)).items:
        if condition := next((one for one in node.status.conditions if one.type == READY), None):
            missing = {label: "true" for label in labels if label not in node.metadata.labels}
            if missing:
                name = node.metadata.name
                await client.patch(NODE, name, {"metadata": {"labels": missing}})
            how = "" if condition.reason == "EverythingIsThere" else f"without {condition.message}"
            return ("ok" if condition.status == "True" else "-"), how
    return "-", "the agent has not said what it can do; see its log"
