"""The ConfigMap in which a scheduler names PodGroups that it has let in, many in one write.

The phase Inqueue of a PodGroup tells the job controller to create its pods.  In a flood of small
jobs that write costs the server as much as a pod does, and what follows overwrites it a moment
later, so such groups are named together instead (decision 0202).  The job controller creates the
ConfigMap; a scheduler that finds none knows that nobody reads it.
"""

from __future__ import annotations

from collections.abc import Iterable

NAME = "hekla-inqueue-podgroups"
KEY = "podgroups"
"""The key of its data: a line for each group that the last write lets in."""


def written(groups: Iterable[tuple[str, str]]) -> str:
    """The lines that name groups, given as (namespace/name, uid)."""
    return "".join(f"{key} {uid}\n" for key, uid in groups)


def read(text: str) -> list[tuple[str, str]]:
    """The groups that lines name, as (namespace/name, uid); what is no such line is passed over."""
    words = (line.split() for line in text.splitlines())
    return [(line[0], line[1]) for line in words if len(line) == 2]
