"""Where a kind keeps the three numbers that its scale subresource shows."""

from __future__ import annotations

from typing import NamedTuple

Path = tuple[str, ...]


class Scale(NamedTuple):
    """Paths in the tree; `selector` leads to a LabelSelector, a map of labels, or (custom kinds) to
    selector text."""

    spec_replicas: Path
    status_replicas: Path
    selector: Path | None
    selector_is_text: bool = False


WORKLOAD = Scale(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))
