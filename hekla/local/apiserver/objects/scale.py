"""The paths of the fields that a kind's scale subresource shows."""

from __future__ import annotations

from typing import NamedTuple

Path = tuple[str, ...]


class Scale(NamedTuple):
    """Paths in the tree. `selector` leads to a LabelSelector, to a map of labels, or, in custom
    kinds, to the text of a selector."""

    spec_replicas: Path
    status_replicas: Path
    selector: Path | None
    selector_is_text: bool = False


WORKLOAD = Scale(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))
