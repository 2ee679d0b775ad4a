"""Amounts of resources as a person writes them."""

from __future__ import annotations

from hekla.engine.model.resources import CPU, MEMORY, PODS, Amounts, ordered


def describe(amounts: Amounts) -> str:
    """A request in a few words: cpu=4 memory=2Gi."""
    return " ".join(f"{name}={value}" for name, value in written(amounts).items()) or "nothing"


def written(amounts: Amounts) -> dict[str, str]:
    """What a request asks for beside room for a pod, each amount as a person writes it."""
    return {
        name: amount(name, amounts[name])
        for name in ordered(amounts)
        if name != PODS and amounts[name] > 0
    }


def amount(name: str, value: float) -> str:
    """One amount as a person writes it."""
    if name == MEMORY:
        for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
            if value >= size:
                return f"{value / size:.4g}{unit}"
        return f"{value:.0f}"
    if name == PODS:
        return f"{value:.0f}"
    if name == CPU and value % 1000:
        return f"{value:.0f}m"
    return f"{value / 1000:g}"
