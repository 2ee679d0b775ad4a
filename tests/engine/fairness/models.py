"""The fair-share rules once more, slow and exact, in fractions: what the engine's floats are
compared with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

Exact = dict[str, Fraction]
EPS = Fraction(1, 10)
NOTHING = Fraction(0)
TINY = Fraction(1, 10**6)
"""Where floats stop changing, a geometric series in fractions goes on for ever."""


def exact(of: Mapping[str, float]) -> Exact:
    return {name: Fraction(value) for name, value in of.items()}


def of(amounts: Mapping[str, Fraction], name: str) -> Fraction:
    return amounts.get(name, NOTHING)


# --------------------------------------------------------------------------------------- proportion


@dataclass
class Demand:
    """One queue of the loop by weights."""

    weight: int
    request: Exact
    guarantee: Exact
    ceiling: Exact
    deserved: Exact = field(default_factory=dict)


def share_out(claims: list[Demand], total: Exact) -> bool:
    """Plugins-fairness 5.2 over a fixed set of resources, each of which every queue's ceiling
    names.

    False where something was short by the tolerance itself: there the last bit of a float decides.
    """
    remaining, met, clear = dict(total), [False] * len(claims), True
    while True:
        weights = sum(demand.weight for demand, done in zip(claims, met) if not done)
        if not weights:
            return clear
        before, given = dict(remaining), dict.fromkeys(total, NOTHING)
        for at, demand in enumerate(claims):
            if met[at]:
                continue
            old = dict(demand.deserved)
            for name in total:
                wish = of(old, name) + remaining[name] * demand.weight / weights
                wish = min(wish, of(demand.ceiling, name), of(demand.request, name))
                demand.deserved[name] = max(wish, of(demand.guarantee, name))
                given[name] += demand.deserved[name] - of(old, name)
            short = (value - of(demand.deserved, name) for name, value in demand.request.items())
            clear = clear and all(abs(one - EPS) > TINY for one in short)
            fits = all(
                value - of(demand.deserved, name) < EPS for name, value in demand.request.items()
            )
            met[at] = fits or (
                bool(old)
                and all(abs(demand.deserved[name] - of(old, name)) < TINY for name in total)
            )
        remaining = {name: max(remaining[name] - given[name], NOTHING) for name in total}
        clear = clear and all(abs(value - EPS) > TINY for value in remaining.values())
        gone = all(value < EPS for name, value in remaining.items() if name != "pods")
        if gone or all(abs(remaining[name] - before[name]) < TINY for name in total):
            return clear


# --------------------------------------------------------------------------------- hierarchical drf


@dataclass
class Leaf:
    """A job: where it hangs, what it holds, what it asks for in all."""

    path: tuple[str, ...]
    held: Exact
    request: Exact


@dataclass
class Value:
    """What is known of a group or job."""

    held: Exact
    share: Fraction
    saturated: bool


def fair_values(
    leaves: Mapping[str, Leaf], paths: list[tuple[str, ...]], total: Exact
) -> dict[tuple[str, ...], Value]:
    """Plugins-fairness 4.4, from scratch: the value of each group."""
    growing = {
        name
        for name in total
        if sum((of(leaf.held, name) for leaf in leaves.values()), NOTHING) < total[name]
    }

    def share(held: Exact) -> Fraction:
        return max((of(held, name) / most for name, most in total.items()), default=NOTHING)

    def leaf_value(leaf: Leaf) -> Value:
        full = any(
            value >= EPS
            and of(leaf.request, name)
            and (value >= leaf.request[name] or name not in growing)
            for name, value in leaf.held.items()
        )
        return Value(leaf.held, share(leaf.held), full)

    values: dict[tuple[str, ...], Value] = {}

    def group(at: tuple[str, ...]) -> Value:
        below = {
            path[: len(at) + 1] for path in paths if len(path) > len(at) and path[: len(at)] == at
        }
        children = [group(one) for one in sorted(below)] + [
            leaf_value(leaf) for leaf in leaves.values() if leaf.path == at
        ]
        counted = [one for one in children if one.share]
        least = min((one.share for one in counted if not one.saturated), default=Fraction(1))
        least = min(least, Fraction(1))
        held: Exact = {}
        for one in counted:
            for name, value in one.held.items():
                held[name] = of(held, name) + (
                    value if one.saturated else value * least / one.share
                )
        values[at] = Value(held, share(held), all(one.saturated for one in children))
        return values[at]

    group(())
    return values


# ---------------------------------------------------------------------------------- capacity's tree


@dataclass
class Spec:
    """A queue of the tree as written."""

    parent: str
    deserved: Exact
    guarantee: Exact
    capability: Exact


def ceilings(
    specs: Mapping[str, Spec], dims: tuple[str, ...]
) -> dict[str, tuple[dict[str, Fraction | None], dict[str, Fraction]]]:
    """Plugins-fairness 6.3: for each queue its real ceiling (None is without end) and what it
    deserves.  Absent scalars are inherited."""
    result: dict[str, tuple[dict[str, Fraction | None], dict[str, Fraction]]] = {}

    def children(name: str) -> list[str]:
        return [one for one, spec in specs.items() if spec.parent == name and one != "root"]

    def least(left: Fraction | None, right: Fraction | None) -> Fraction | None:
        return right if left is None else left if right is None else min(left, right)

    def down(name: str, own: dict[str, Fraction | None], real: dict[str, Fraction | None]) -> None:
        below = children(name)
        sure = {dim: sum((of(specs[one].guarantee, dim) for one in below), NOTHING) for dim in dims}
        for one in below:
            spec = specs[one]
            stated = {
                dim: value
                for dim, value in spec.capability.items()
                if value > 0 or dim not in ("cpu", "memory")
            }
            ceiling = {dim: stated.get(dim, own[dim]) for dim in dims}
            room = {
                dim: None
                if (whole := real[dim]) is None
                else max(whole - sure[dim], NOTHING) + of(spec.guarantee, dim)
                for dim in dims
            }
            mine = {dim: least(room[dim], ceiling[dim]) for dim in dims}
            result[one] = (
                mine,
                {dim: max(of(spec.deserved, dim), of(spec.guarantee, dim)) for dim in dims},
            )
            down(one, ceiling, mine)

    endless: dict[str, Fraction | None] = dict.fromkeys(dims)
    down("root", endless, endless)
    return result
