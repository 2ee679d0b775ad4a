"""`vcctl top budgets`: what users, namespaces and accounts have used of their budgets, as the scheduler
has written it down last."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

from hekla.api.kubernetes import core
from hekla.cli.vcctl.command import CommandError
from hekla.cli.vcctl.connection import Api, Tree
from hekla.cli.vcctl.top.usage import aligned

LABELS = "app=volcano-scheduler,component=party-limits"
KEY = "state.json"
HOUR = 3600.0
GI = 1 << 30
NEVER = "never"


class Row(NamedTuple):
    """Hours of one resource."""

    party: str
    resource: str
    used: float
    budget: float
    renewed: str

    @property
    def cells(self) -> tuple[str, ...]:
        left = max(self.budget - self.used, 0.0)
        hours = tuple(self._hours(one) for one in (self.used, self.budget, left))
        share = f" ({round(100 * self.used / self.budget)}%)" if self.budget else ""
        return self.party, self.resource, hours[0] + share, *hours[1:], self.renewed

    def _hours(self, value: float) -> str:
        if self.resource == "memory":
            return f"{value / GI:.4g}Gi"
        return f"{value / 1000:.6g}"


async def top(api: Api) -> None:
    """Print the table.  Raises CommandError."""
    kept = (await api.list(core.CONFIG_MAP.untyped, None, labels=LABELS)).items
    print("\n".join(table(kept)))


def table(kept: Iterable[Tree]) -> list[str]:
    """Of the ConfigMaps of schedulers, those that have used most of a budget first.  Raises
    CommandError."""
    rows: list[Row] = []
    times: list[str] = []
    for one in kept:
        try:
            tree = json.loads((one.get("data") or {})[KEY])
            times.append(str(tree["lastCycle"]))
            rows += _rows(tree)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            meta = one["metadata"]
            raise CommandError(
                f"ConfigMap {meta.get('namespace')}/{meta['name']} cannot be read: {error!r}"
            ) from error
    if not rows:
        return ["Nobody has used anything of a budget."]
    rows.sort(key=lambda row: (-row.used / (row.budget or 1.0), row.party, row.resource))
    titles = "Party", "Resource", "Used hours", "Budget", "Left", "Renewed"
    return [*aligned([titles, *(row.cells for row in rows)]), "", f"As of {min(times)}."]


def _rows(tree: Tree) -> Iterable[Row]:
    for party, budget in tree["budgets"].items():
        for name, most in budget["resources"].items():
            used = tree["used"].get(party, {}).get(name, 0.0)
            yield Row(party, name, used / HOUR, most / HOUR, budget.get("renewed", NEVER))
