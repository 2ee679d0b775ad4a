"""Resource lists as the queue tree counts them: vectors of cpu, memory and scalars.

Reference: api-and-admission 5.3.8, comparison details.  cpu is in millicores, memory in bytes,
`pods` plain, every other resource in thousandths; names without a prefix that are no resource of
pods (`storage`) and object counts are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hekla.api.text import quantity
from hekla.podrules.resources import is_extended

TOLERANCE = 0.1  # below this an amount counts as nothing


def is_scalar(name: str) -> bool:
    prefixed = "/" in name and "kubernetes.io/" in name
    return (
        is_extended(name)
        or prefixed
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or name == "ephemeral-storage"
    )


@dataclass(slots=True)
class Resources:
    """Amounts by name; cpu and memory are always there, a scalar only if it was set."""

    cpu: float = 0
    memory: float = 0
    scalars: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, amounts: Mapping[str, Any] | None) -> Resources:
        total = cls()
        for name, amount in (amounts or {}).items():
            if name == "cpu":
                total.cpu = quantity.milli(amount)
            elif name == "memory":
                total.memory = quantity.whole(amount)
            elif name == "pods":
                total.scalars[name] = quantity.whole(amount)
            elif not name.startswith("count/") and is_scalar(name):
                total.scalars[name] = quantity.milli(amount)
        return total

    def add(self, other: Resources) -> None:
        self.cpu += other.cpu
        self.memory += other.memory
        for name, amount in other.scalars.items():
            self.scalars[name] = self.scalars.get(name, 0) + amount

    def items(self) -> Iterable[tuple[str, float]]:
        yield "cpu", self.cpu
        yield "memory", self.memory
        yield from sorted(self.scalars.items())

    def get(self, name: str) -> float:
        return (
            self.cpu
            if name == "cpu"
            else self.memory
            if name == "memory"
            else self.scalars.get(name, 0)
        )

    def fits(self, limit: Resources) -> bool:
        """Whether no resource exceeds the limit.  A scalar that the limit does not have exceeds it,
        even at 0."""
        if any(name not in limit.scalars for name in self.scalars):
            return False
        return all(
            amount < limit.get(name) or abs(amount - limit.get(name)) < TOLERANCE
            for name, amount in self.items()
        )

    def __str__(self) -> str:
        return ", ".join(f"{name} {amount:.2f}" for name, amount in self.items())


def amount_text(name: str, amount: float) -> str:
    """An amount in a message: cpu and memory as quantities, others as the number that is compared."""
    if name == "cpu":
        return _scaled(int(amount), 1000, ("m", "", "k", "M", "G", "T", "P", "E"))
    if name == "memory":
        return _scaled(int(amount), 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    return f"{amount:.2f}"


def _scaled(amount: int, step: int, units: tuple[str, ...]) -> str:
    unit = 0
    while amount and amount % step == 0 and unit + 1 < len(units):
        amount, unit = amount // step, unit + 1
    return f"{amount}{units[unit]}" if amount else "0"
