"""MIG: which instances a card can still be cut into.  Reference: plugins-placement 7.4.

A card is cut into the instances of one group of templates.  An instance is named by its position:
all places of the first template, then all of the second, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Template:
    """One size of instance: memory in MiB, and how many of it a card can hold."""

    name: str
    memory: int
    count: int


@dataclass(frozen=True, slots=True)
class Group:
    """Templates that go together on one card."""

    name: str
    templates: tuple[Template, ...]


@dataclass(slots=True)
class Entry:
    """Instances of one template in use."""

    template: Template
    used: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Geometry:
    """What one card may be cut into and what it is cut into now."""

    groups: tuple[Group, ...]
    group: Group | None = None
    entries: list[Entry] = field(default_factory=list)

    def copy(self) -> Geometry:
        return Geometry(
            self.groups, self.group, [Entry(one.template, set(one.used)) for one in self.entries]
        )

    def find(self, memory: int) -> tuple[Group, int, Template] | None:
        """A place for `memory` MiB: group, position, template.

        Once instances are in use, only templates that have one already are offered, as upstream.
        """
        for group in (self.group,) if self.group is not None else self.groups:
            for template in sorted(group.templates, key=lambda one: one.memory):
                if template.memory < memory:
                    continue
                if not self.entries:
                    return group, _base(group, template), template
                entry = next(
                    (one for one in self.entries if one.template.name == template.name), None
                )
                if entry is None or len(entry.used) >= template.count:
                    continue
                free = next(index for index in range(template.count) if index not in entry.used)
                return group, _base(group, template) + free, template
        return None

    def book(self, group_name: str, position: int) -> int:
        """Take a place; the memory of its template, 0 where there is no such place."""
        found = self._at(group_name, position)
        if found is None:
            return 0
        group, template, index = found
        self.group = group
        entry = next((one for one in self.entries if one.template.name == template.name), None)
        if entry is None:
            entry = Entry(template)
            self.entries.append(entry)
        entry.used.add(index)
        return template.memory

    def free(self, group_name: str, position: int) -> int:
        """Give a place back; the memory of its template, 0 where none of it was in use."""
        found = self._at(group_name, position)
        if found is None:
            return 0
        _, template, index = found
        entry = next((one for one in self.entries if one.template.name == template.name), None)
        if entry is None:
            return 0
        entry.used.discard(index)
        if not entry.used:
            self.entries.remove(entry)
        return template.memory

    def _at(self, group_name: str, position: int) -> tuple[Group, Template, int] | None:
        group = next((one for one in self.groups if one.name == group_name), None)
        if group is None or position < 0:
            return None
        for template in group.templates:
            if position < template.count:
                return group, template, position
            position -= template.count
        return None


def _base(group: Group, template: Template) -> int:
    return sum(one.count for one in group.templates[: group.templates.index(template)])


def place_of(identity: str) -> tuple[str, int] | None:
    """Group and position out of `uuid[group-position]`; None for a plain card."""
    if not identity.endswith("]") or "[" not in identity:
        return None
    group, _, position = identity[identity.index("[") + 1 : -1].rpartition("-")
    return (group, int(position)) if position.isdigit() else None


def geometries(tree: object) -> list[tuple[tuple[str, ...], tuple[Group, ...]]]:
    """`knownMigGeometries` of the device configuration: parts of model names, and their groups."""
    result = []
    for one in tree if isinstance(tree, Sequence) else ():
        if not isinstance(one, Mapping):
            continue
        groups = tuple(
            Group(
                str(group.get("group", "")),
                tuple(
                    Template(
                        str(made.get("name", "")),
                        int(made.get("memory", 0)),
                        int(made.get("count", 0)),
                    )
                    for made in group.get("geometries") or group.get("instances") or ()
                ),
            )
            for group in one.get("allowedGeometries") or ()
        )
        result.append((tuple(str(model) for model in one.get("models") or ()), groups))
    return result
