"""Finds the tree of hypernodes in the labels of nodes (reference: controllers 10.5).

A topology type is a list of label keys from the highest tier down to the node.  Nodes that agree in
the key of a tier are one hypernode of that tier.  Made-up names are derived from what they stand
for, so that the next discovery makes the same ones.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hekla.api import names, topology
from hekla.controllers.hypernode.members import Nodes

log = logging.getLogger(__name__)

SOURCE = "label"
LONGEST_TYPE = 20


@dataclass(slots=True)
class Part:
    """One hypernode that should exist."""

    type: str
    tier: int
    label: str
    value: str
    member_type: topology.MemberType
    name: str = ""
    members: set[str] = field(default_factory=set)

    @property
    def body(self) -> dict[str, Any]:
        members = [
            {"type": str(self.member_type), "selector": {"exactMatch": {"name": name}}}
            for name in sorted(self.members)
        ]
        return {
            "metadata": {
                "name": self.name,
                "labels": {names.NETWORK_TOPOLOGY_SOURCE: SOURCE, self.label: self.value},
            },
            "spec": {"tier": self.tier, "tierName": self.label, "members": members},
        }


def tiers_of(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """The label keys of each topology type, tier 1 first.  A type that cannot be read is left out
    and logged."""
    found: dict[str, list[str]] = {}
    for type_, entries in (config.get("networkTopologyTypes") or {}).items():
        labels = [
            str(entry.get("nodeLabel") or "") for entry in entries or () if isinstance(entry, dict)
        ]
        if len(type_) > LONGEST_TYPE:
            log.warning(
                "network topology type %s: its name is longer than %d characters",
                type_,
                LONGEST_TYPE,
            )
        elif len(set(labels)) != len(labels) or not all(labels):
            log.warning(
                "network topology type %s: its labels have to be different and not empty: %s",
                type_,
                labels,
            )
        else:
            found[type_] = labels[-2::-1]  # the last names the node itself
    return found


def discover(
    tiers: Mapping[str, Sequence[str]], nodes: Nodes, existing: Iterable[topology.HyperNode]
) -> dict[str, dict[str, Any]]:
    """The hypernodes that the labels ask for, by name."""
    taken = sorted(existing, key=lambda node: node.metadata.name)
    made: dict[str, dict[str, Any]] = {}
    for type_, labels in tiers.items():
        parts: dict[tuple[int, str], Part] = {}
        for name, values in sorted(nodes.items()):
            below, member_type = name, topology.MemberType.NODE
            for tier, label in enumerate(labels, start=1):
                value = values.get(label)
                if not value:
                    break
                part = parts.get((tier, value))
                if part is None:
                    part = parts[tier, value] = Part(type_, tier, label, value, member_type)
                    part.name = _name(part, taken)
                part.members.add(below)
                below, member_type = part.name, topology.MemberType.HYPER_NODE
        made.update((part.name, part.body) for part in parts.values())
    return made


def _name(part: Part, existing: list[topology.HyperNode]) -> str:
    clean = re.sub(r"[^a-z0-9.-]", "-", part.type.lower())
    prefix = f"hypernode-{clean}-tier{part.tier}-"
    for node in existing:
        labels = node.metadata.labels
        ours = (
            labels.get(names.NETWORK_TOPOLOGY_SOURCE) == SOURCE
            and labels.get(part.label) == part.value
        )
        if ours and node.metadata.name.startswith(prefix):
            return node.metadata.name
    word = hashlib.sha256(f"{part.type}/{part.tier}/{part.label}={part.value}".encode()).hexdigest()
    return prefix + word[:5]
