"""Where placement plugins meet what seldom happens: labels that change, selectors that are none,
evictions and promises on their way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hekla.engine.cycle import hooks_of, open_session
from hekla.engine.framework.session import Session
from hekla.engine.model.hypernodes import ROOT, tree_of
from hekla.engine.model.nodeview import NodeView
from hekla.engine.model.podclass import PodClasses, TermTable
from hekla.engine.model.resources import ResourceSpace
from hekla.engine.placement.placer import placer_of
from hekla.engine.plugins.placement.extender import Extender, ExtenderArguments
from hekla.engine.plugins.placement.networktopology import NetworkTopologyAware
from hekla.engine.plugins.placement.strategyfit import ResourceStrategyFit
from hekla.engine.policies import read_policy
from hekla.engine.world import World, policy
from tests.engine.trees import hard, hyper


def opened(here: World) -> Session:
    return open_session(here.state, hooks_of(here.state, here.policy), here.now)


# --------------------------------------------------------------------------------------- namespaces

AWAY = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": {"matchLabels": {"app": "web"}},
    "namespaceSelector": {"matchLabels": {"team": "a"}},
}


def open_nodes(here: World) -> list[str]:
    session = opened(here)
    mask = placer_of(session).filters.feasible(session, here.state.tasks["default/asks-0"])
    return [name for name, fits in zip(here.state.nodes.names, mask.tolist()) if fits]


def test_pods_are_found_by_the_labels_that_their_namespace_has_now() -> None:
    """The Namespace may come after its pods, and its labels may change while they run."""
    here = World(policy(plugins=["gang", "predicates"], actions="allocate"))
    here.nodes("n1", "n2", cpu=8)
    here.job("one", pods=0, min_available=1)
    here.pod(
        "asks-0",
        job="one",
        cpu=1,
        spec={
            "affinity": {
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [AWAY]}
            }
        },
    )
    here.state.upsert_pod(
        {
            "metadata": {"name": "there", "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
            "status": {"phase": "Running"},
        }
    )
    assert open_nodes(here) == ["n1", "n2"]
    for team, expected in (("a", ["n2"]), ("b", ["n1", "n2"]), ("a", ["n2"])):
        here.state.upsert_namespace({"metadata": {"name": "shop", "labels": {"team": team}}})
        assert open_nodes(here) == expected
    here.state.remove_pod("shop/there")
    assert open_nodes(here) == ["n1", "n2"]


# ------------------------------------------------------------------------------------------ domains


def member(**selector: Any) -> dict[str, Any]:
    return {"type": "Node", "selector": selector}


def labelled(*expressions: dict[str, Any]) -> dict[str, Any]:
    return member(labelMatch={"matchExpressions": list(expressions)})


@pytest.mark.parametrize(("chosen", "expected"), [
    (labelled({"key": "rack", "operator": "Near"}), []),
    (labelled({"key": "rack", "operator": "NotIn", "values": []}), []),
    (labelled({"key": "rack", "operator": "Exists", "values": ["a"]}), []),
    (labelled({"key": "rack", "operator": "Gt", "values": ["0"]}), []),
    (labelled({"key": "rack", "operator": "DoesNotExist"}), ["n12"]),
    (member(regexMatch={"pattern": r"^n[[:digit:]]\z"}), ["n1", "n2"]),
    (member(regexMatch={"pattern": "n(?!1)"}), []),
    (member(regexMatch={"pattern": "1"}), ["n1", "n12"]),
])  # fmt: skip
def test_what_chooses_the_nodes_of_a_domain(chosen, expected):
    """Labels by Kubernetes' selectors, names by RE2's patterns; what is neither chooses nobody and
    stops nobody."""
    here = World(
        policy(plugins=["gang", "predicates", "network-topology-aware"], actions="allocate")
    )
    here.nodes("n1", "n2", labels={"rack": "1"})
    here.nodes("n12")
    here.state.upsert_other(
        "HyperNode", {"metadata": {"name": "s0"}, "spec": {"tier": 1, "members": [chosen]}}
    )
    rows = tree_of(here.state).by_name["s0"].rows
    assert [here.state.nodes.names[row] for row in rows] == expected
    here.job("train", pods=1, cpu=1)
    assert len(here.run().binds) == 1


def near(session: Session) -> NetworkTopologyAware:
    return next(one for one in session.hooks.plugins if isinstance(one, NetworkTopologyAware))


def test_who_is_evicted_leaves_its_domain_at_once_and_comes_back_when_it_is_spared():
    """plugins-placement 9.1: what is evicted in this cycle is no longer used, what is promised is."""
    here = World(
        policy(plugins=["gang", "predicates", "network-topology-aware"], actions="allocate")
    )
    here.nodes("n1", "n2", cpu=4, memory="8Gi")
    for number in (1, 2):
        hyper(here, f"s{number}", 1, f"n{number}")
    here.job("low", pods=1, on=["n1"], phase="Running", cpu=4, memory="4Gi")
    here.job("high", pods=1, cpu=2, memory="2Gi", group=hard(1))
    session = opened(here)
    (sub_job,) = here.state.jobs["default/high"].sub_jobs.values()

    def worth() -> dict[str, float]:
        return near(session).hyper_node_order(sub_job, ["s1", "s2"])

    assert worth() == {"s1": 0.0, "s2": 37.5}
    statement = session.statement()
    statement.evict(here.state.tasks["default/low-task-0"], "for the test")
    assert worth() == {"s1": 37.5, "s2": 37.5}
    statement.pipeline(here.state.tasks["default/high-task-0"], 0)
    assert worth() == {"s1": 75.0, "s2": 37.5}
    statement.discard()
    assert worth() == {"s1": 0.0, "s2": 37.5}


def test_a_domain_that_is_gone_is_near_nothing():
    here = World(
        policy(plugins=["gang", "predicates", "network-topology-aware"], actions="allocate")
    )
    here.nodes("n1", "n2")
    here.job("train", pods=1, cpu=1, group=hard(1))
    session = opened(here)
    task = here.state.tasks["default/train-task-0"]
    (score,) = near(session).scores()
    for domain, expected in ((ROOT, [1.0, 1.0]), ("gone", [0.0, 0.0])):
        task.allocated_domain = domain
        raw = score.raw(task.pods, NodeView(here.state.nodes), task)
        assert raw is not None and raw.tolist() == expected


# ---------------------------------------------------------------------------------- groups of nodes


def test_what_is_promised_counts_for_the_limit_of_a_group():
    """plugins-placement 5: each allocation counts, also one that waits until others have left."""
    here = World(policy(plugins=["gang", "predicates", "nodegroup"], actions="allocate"))
    here.nodes("n1", cpu=8, labels={"volcano.sh/nodegroup-name": "g1"})
    here.state.upsert_queue(
        {
            "metadata": {
                "name": "q1",
                "annotations": {"volcano.sh/nodegroup-resource-limits": '{"g1": {"cpu": "3"}}'},
            },
            "spec": {
                "weight": 1,
                "affinity": {
                    "nodeGroupAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": ["g1"]}
                },
            },
            "status": {"state": "Open"},
        }
    )
    for name in ("first", "second"):
        here.job(name, pods=1, cpu=2, queue="q1")
    session = opened(here)
    first, second = (here.state.tasks[f"default/{name}-task-0"] for name in ("first", "second"))
    assert placer_of(session).filters.passes(session, second, 0)
    statement = session.statement()
    statement.pipeline(first, 0)
    assert not placer_of(session).filters.passes(session, second, 0)
    statement.discard()
    assert placer_of(session).filters.passes(session, second, 0)


# ---------------------------------------------------------------------- images, extender, arguments


def test_an_image_that_nobody_had_any_more_has_the_size_that_is_reported_now():
    here = World(policy(plugins=["nodeorder"], actions="allocate"))
    here.nodes("n1", images={"app:latest": 100})
    here.nodes("n2", images={"app:latest": 200})
    assert here.state.nodes.images["app:latest"][0] == 100
    here.nodes("n1")
    here.nodes("n2")
    here.nodes("n2", images={"app:latest": 300})
    assert here.state.nodes.images["app:latest"] == (300, {1})


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"limits": {"nvidia.com/gpu": "0"}}, True),
        ({"requests": {"nvidia.com/gpu": "1"}}, True),
        ({"requests": {"cpu": "1"}}, False),
    ],
)
def test_an_extender_hears_of_pods_that_mention_its_resource(resources, expected):
    spec = {"containers": [{"name": "c", "resources": resources}]}
    pods = PodClasses(ResourceSpace(), TermTable()).intern("default", {}, {}, spec)
    assert Extender(ExtenderArguments(managed=["nvidia.com/gpu"]), {}).interested(pods) == expected


def test_a_section_is_read_in_any_case_and_of_a_fraction_the_whole_part():
    """plugins-placement 0.2 (decode); what is a number of its own stays as strict as it was."""
    arguments = {
        "resourceStrategyFitWeight": 3.7,
        "resources": {
            "cpu": {"Type": "MostAllocated", "WEIGHT": 2.9},
            "nvidia.com/*": {"weight": 4},
        },
        "sra": {
            "Enable": True,
            "resourceweight": {"nvidia.com/gpu": 2.5},
            "Resources": "nvidia.com/gpu",
        },
    }
    shape = [{"Utilization": 0, "Score": 10.0}, {"utilization": 80.5, "score": 0}]
    tree = {
        "actions": "allocate",
        "tiers": [
            {
                "plugins": [
                    {"name": "resource-strategy-fit", "arguments": arguments},
                    {
                        "name": "predicates",
                        "arguments": {
                            "volumebinding.shape": shape,
                            "dynamicresources.filterTimeoutSeconds": 3.9,
                        },
                    },
                ]
            }
        ],
    }
    here = World(read_policy(tree))
    fit, predicates = hooks_of(here.state, here.policy).plugins
    assert isinstance(fit, ResourceStrategyFit)
    assert (fit.weight, fit.exact["cpu"].type, fit.exact["cpu"].weight) == (3, "MostAllocated", 2)
    assert [(prefix, one.weight) for prefix, one in fit.families] == [("nvidia.com/", 4)]
    assert fit.arguments.sra.enable and fit.scarce == {"nvidia.com/gpu": 2}
    assert predicates.arguments.claims_timeout == 3
    assert predicates.shape(np.array([0.0, 40.0, 80.0, 100.0])).tolist() == [100.0, 50.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("stated", "capacity", "expected"),
    [
        ("4000", "4", (8000.0, 8000.0)),
        ("4000", None, (8000.0, 8000.0)),
        ("much", "5", (4000.0, 5000.0)),
        ("inf", "5", (4000.0, 5000.0)),
    ],
)
def test_what_a_node_lends_beyond_its_own_is_part_of_its_capacity(stated, capacity, expected):
    """scheduler-core 2.11; load is measured by it (plugins-placement 11)."""
    here = World(policy(plugins=["usage"], actions="allocate"))
    here.state.upsert_node(
        {
            "metadata": {"name": "n1", "annotations": {"volcano.sh/oversubscription-cpu": stated}},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
                "capacity": {"cpu": capacity} if capacity else {},
            },
        }
    )
    nodes = here.state.nodes
    column = nodes.space.column("cpu")
    assert (nodes.allocatable[column][0], nodes.capacity(column)[0]) == expected
