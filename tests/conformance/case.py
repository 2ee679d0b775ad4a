"""What the runners of the different kinds share: how a case is answered, and how its objects become
a state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hekla.engine.actions import ACTIONS
from hekla.engine.framework.plugin import Plugin
from hekla.engine.framework.policy import Policy
from hekla.engine.model.state import State
from hekla.engine.plugins import PLUGINS
from hekla.engine.policies import read_policy
from tests.conformance.custom import CUSTOM

Case = Mapping[str, Any]


@dataclass(frozen=True)
class Difference:
    """One thing that did not come out as expected."""

    what: str
    expected: Any
    got: Any


class LeftOut(Exception):
    """The case needs an action or plugin that does not exist yet."""


def policy_of(case: Case, actions: list[str]) -> Policy:
    """The case's policy: of its tiers, the plugins that were registered.  Raises LeftOut."""
    known: dict[str, type[Plugin]] = {**PLUGINS, **CUSTOM}
    registered = case.get("plugins")
    tiers = [
        {
            "plugins": [
                one for one in tier["plugins"] if registered is None or one["name"] in registered
            ]
        }
        for tier in case["tiers"]
    ]
    for action in actions:
        if action not in ACTIONS:
            raise LeftOut(f"action {action}")
    for tier in tiers:
        for option in tier["plugins"]:
            if option["name"] not in known:
                raise LeftOut(f"plugin {option['name']}")
    tree = {
        "actions": ", ".join(actions) or "allocate",
        "tiers": tiers,
        "configurations": case.get("configurations") or [],
    }
    return read_policy(tree, plugins=CUSTOM, defaults=False, strict=False)


def state_of(case: Case) -> State:
    """A state without objects, as the case's knobs have the scheduler started."""
    knobs = case.get("knobs") or {}
    stated = knobs.get("feature_gates") or {}
    on = {
        name for name in stated if not isinstance(stated, Mapping) or stated[name] in (True, "true")
    }
    default_queue = (knobs.get("server_opts") or {}).get("default_queue") or "default"
    return State(
        default_queue=default_queue,
        lifts_gates="SchedulingGatesQueueAdmission" in on,
        scores_storage="StorageCapacityScoring" in on,
    )


_FEEDS = (
    ("namespaces", State.upsert_namespace),
    ("nodes", State.upsert_node),
    ("pods", State.upsert_pod),
    ("podgroups", State.upsert_pod_group),
    ("queues", State.upsert_queue),
    ("priorityclasses", State.upsert_priority_class),
)


def feed(state: State, objects: Mapping[str, Any], knobs: Mapping[str, Any]) -> None:
    """Give the state a case's objects, in the order that the format states."""
    fed = {name for name, _ in _FEEDS}
    for name, listed in objects.items():
        if name not in fed:
            for one in listed:
                state.upsert_other(one.get("kind", name), one)
    for name, upsert in _FEEDS:
        for one in objects.get(name) or ():
            upsert(state, one)
    if "hypernode_infos" in knobs or "hypernode_real_nodes" in knobs:
        state.hyper_nodes = {
            "infos": knobs.get("hypernode_infos") or {},
            "members": knobs.get("hypernode_real_nodes") or {},
            "tiers": knobs.get("hypernodes_by_tier") or {},
        }
    if knobs.get("node_usage"):
        state.others["NodeUsage"] = {
            name: {"metrics_age_seconds": knobs.get("metrics_age_seconds"), **usage}
            for name, usage in knobs["node_usage"].items()
        }
