"""What a descheduler remembers from one cycle to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from hekla.descheduler.heat import Heat
from hekla.descheduler.returns import Returns


@dataclass(slots=True)
class Memory:
    """Owners that keep coming back, and nodes that keep being hot."""

    returns: Returns = field(default_factory=Returns)
    heat: Heat = field(default_factory=Heat)
