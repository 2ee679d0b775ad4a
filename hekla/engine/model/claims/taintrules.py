"""Taints that administrators put on devices from outside of their driver's slices:
DeviceTaintRules."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from hekla.api.trees import Tree
from hekla.engine.model.claims.pools import Device, Pool
from hekla.engine.model.nodes import Taint


@dataclass(frozen=True, slots=True)
class TaintRule:
    """One taint, and whose it is."""

    selector: tuple[str, str, str] | None
    """Driver, pool and device, empty for any; None for no device at all."""
    taint: Taint

    def concerns(self, device: Device) -> bool:
        return self.selector is not None and all(
            stated in ("", own) for stated, own in zip(self.selector, device.key)
        )


def read_rule(tree: Tree) -> TaintRule:
    """Raises ValueError, TypeError and the like for a rule that cannot be understood."""
    spec = tree["spec"]
    stated, taint = spec.get("deviceSelector"), spec["taint"]
    put = Taint(str(taint["key"]), str(taint.get("value") or ""), str(taint.get("effect") or ""))
    if stated is None:
        return TaintRule(None, put)
    return TaintRule(
        (
            str(stated.get("driver") or ""),
            str(stated.get("pool") or ""),
            str(stated.get("device") or ""),
        ),
        put,
    )


def put_on(rules: Collection[TaintRule], pools: Iterable[Pool]) -> None:
    """Every device has its own taints and those of the rules that concern it."""
    for pool in pools:
        for device in pool.devices.values():
            device.taints = (
                *device.own_taints,
                *(rule.taint for rule in rules if rule.concerns(device)),
            )
