"""What a handler asks of the node, beside the pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hekla.agent.cgroups import Cgroups
from hekla.agent.features import Feature
from hekla.agent.originals import Originals
from hekla.agent.pods import Pod, count, may_use_batch, memory
from hekla.api import names


@dataclass(frozen=True, slots=True)
class Context:
    """The node of a handler's pod."""

    cgroups: Cgroups
    batch_cpu: str = names.BATCH_CPU
    batch_memory: str = names.BATCH_MEMORY
    memory: int = 0
    """The node's capacity in bytes."""
    proc: Path = Path("/proc")
    active: frozenset[Feature] = frozenset()
    originals: Originals = field(default_factory=Originals)

    def is_active(self, feature: Feature) -> bool:
        return feature in self.active

    def memory_of(self, pod: Pod, resources: Mapping[str, Any]) -> int:
        """Bytes of memory in a container's requests or limits: the batch resource where it is there."""
        batch = count(resources, self.batch_memory) if may_use_batch(pod) else None
        return memory(resources) if batch is None else batch
