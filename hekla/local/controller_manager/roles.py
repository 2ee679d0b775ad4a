"""ClusterRole aggregation: a role with an `aggregationRule` holds the rules of the roles that its
selectors find.

The API server authorises by the selectors themselves, so nothing waits for this; it is what readers
of the role see. Reference: local-cluster 7.2, 10.11.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hekla.api.kinds import Kind
from hekla.api.trees import Json
from hekla.kube.cache import Cache
from hekla.kube.client import Client
from hekla.kube.controller import Controller
from hekla.kube.errors import Conflict, NotFound
from hekla.local.controller_manager.pods import matches

CLUSTER_ROLES: Kind[dict[str, Any]] = Kind(
    "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False, dict[str, Any]
)


class AggregationController(Controller):
    """Writes the rules of aggregating roles."""

    name = "clusterrole-aggregation"

    def __init__(self, client: Client, roles: Cache[Json]) -> None:
        super().__init__(roles)
        self.client = client
        self.roles = roles
        roles.on_change(self.queue_aggregating)

    def queue_aggregating(self, old: Json | None, new: Json | None) -> None:
        """Any role may be part of any aggregating one; there are few of those."""
        for role in self.roles.all():
            if role.get("aggregationRule"):
                self.queue.add(role["metadata"]["name"])

    async def reconcile(self, key: str) -> float | None:
        """Write the rules of an aggregating role."""
        role = self.roles.get(key)
        if role is None or not role.get("aggregationRule"):
            return None
        rules = aggregated(role, self.roles.all())
        if rules == (role.get("rules") or []):
            return None
        with suppress(NotFound, Conflict):
            await self.client.patch(CLUSTER_ROLES, key, {"rules": rules}, type="merge")
        return None


def aggregated(role: Json, roles: list[Json]) -> list[Json]:
    """The rules of the roles that the role's selectors find, in order of their names, each once."""
    selectors = role["aggregationRule"].get("clusterRoleSelectors") or []
    found: list[Json] = []
    for other in sorted(roles, key=lambda entry: str(entry["metadata"]["name"])):
        metadata = other["metadata"]
        if metadata["name"] == role["metadata"]["name"] or not any(
            matches(s, metadata.get("labels") or {}) for s in selectors
        ):
            continue
        found += [rule for rule in other.get("rules") or () if rule not in found]
    return found
