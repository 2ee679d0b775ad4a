"""Iterates over all containers of a pod, of every kind."""

from __future__ import annotations

from collections.abc import Iterator

from hekla.api.text.fieldrules import Tree

KINDS = ("initContainers", "containers", "ephemeralContainers")


def containers_of(spec: Tree, path: str) -> Iterator[tuple[Tree, str]]:
    """Each container with its path, in the order in which they start."""
    for kind in KINDS:
        for position, container in enumerate(spec.get(kind) or ()):
            yield container, f"{path}.{kind}[{position}]"
