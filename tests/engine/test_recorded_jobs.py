"""Recorded rows of tables over jobs, their sub-groups, their phase and the tree of domains, read
where the engine has the same notion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from hekla.engine.model.hypernodes import ROOT, HyperTree, settle_topology, tree_of
from hekla.engine.model.podclass import PodClasses, TermTable
from hekla.engine.model.reading import policy_of
from hekla.engine.model.reasons import FitErrors, Reason
from hekla.engine.model.resources import Amounts, ResourceSpace
from hekla.engine.model.state import State
from hekla.engine.model.tasks import Group, Job, Status, Task
from hekla.engine.report import phase_of
from hekla.engine.world import World, policy
from tests.engine.fairness.stage import opened
from tests.recorded import rows, where_recorded

pytestmark = where_recorded


def amounts(tree: Mapping[str, Any]) -> Amounts:
    scalars = {name: float(value) for name, value in (tree.get("ScalarResources") or {}).items()}
    found = {
        "cpu": float(tree.get("MilliCPU", 0)),
        "memory": float(tree.get("Memory", 0)),
        **scalars,
    }
    return {name: value for name, value in found.items() if value}


# -------------------------------------------------------------------------------- counts and phases


def task(name: str, asks: bool, status: Status) -> Task:
    classes, terms = PodClasses(ResourceSpace(), TermTable()), TermTable()
    containers = [{"resources": {"requests": {"cpu": "100m"} if asks else {}}}]
    made = Task(
        f"ns/{name}",
        "ns",
        name,
        name,
        classes.intern("ns", {}, {}, {"containers": containers}),
        terms.label_set("ns", {}, ""),
    )
    made.status = status
    return made


def filled(group: Group, index: Mapping[str, Mapping[str, Any]]) -> Group:
    for status, tasks in index.items():
        for name, about in tasks.items():
            made = task(name, not about.get("BestEffort"), Status(status))
            group.tasks[made.key] = made
            group.counts.enter(made, made.status)
    return group


@pytest.mark.parametrize("pipelined", [False, True])
def test_when_a_sub_group_has_enough(pipelined: bool) -> None:
    for case in rows(
        "scheduler/api/TestSubJobInfo_IsPipelined"
        if pipelined
        else "scheduler/api/TestSubJobInfo_IsReady"
    ):
        row = case["input"]["sji"]
        group = filled(Group("sub", row["MinAvailable"]), row["TaskStatusIndex"])
        assert (group.is_pipelined() if pipelined else group.is_ready()) == case["expect"][
            "expected"
        ], case["id"]


def test_the_counts_of_a_job() -> None:
    for case in rows("scheduler/api/TestJobInfo"):
        index: dict[str, dict[str, Any]] = {}
        for one in case["input"]["tasks"]:
            index.setdefault(one["Status"], {})[one["Name"]] = one
        group, expected = (
            filled(Group("job", case["input"]["jobMinAvailable"]), index),
            case["expect"],
        )
        assert group.is_ready() == expected["expectedIsReady"], case["id"]
        assert group.is_pipelined() == expected["expectedIsPipelined"], case["id"]
        assert group.is_starving() == expected["expectedIsStarving"], case["id"]
        assert group.counts.pending_best_effort == expected["expectedPendingBestEffortTaskNum"], (
            case["id"]
        )


def test_the_phase_of_a_group() -> None:
    for case in rows("scheduler/framework/TestGetPodGroupPhase"):
        row = case["input"]["job"]
        job = Job("ns/job")
        job.phase = row["PodGroup"]["status"]["phase"]
        job.min_available = row["PodGroup"]["spec"]["minMember"]
        job.conditions = list(row["PodGroup"]["status"].get("conditions") or ())
        filled(job, row["TaskStatusIndex"])
        for name, about in row["Tasks"].items():
            job.tasks[f"ns/{name}"].row = 0 if about.get("NodeName") else -1
        session = str(next((one.get("transitionID", "") for one in job.conditions), ""))
        assert phase_of(job, session) == case["expect"]["expected"], case["id"]


def test_what_a_job_holds_beyond_its_minimum() -> None:
    for case in rows("scheduler/api/TestGetElasticResources"):
        state = State()
        group = case["input"]["podgroup"]
        state.upsert_pod_group(group)
        for pod in case["input"]["pods"]:
            marked = {
                **pod["metadata"],
                "annotations": {"scheduling.k8s.io/group-name": group["metadata"]["name"]},
            }
            state.upsert_pod({**pod, "metadata": marked})
        elastic = state.jobs["ns1/pg1"].elastic()
        assert {name: value for name, value in elastic.items() if value} == amounts(
            case["expect"]["want"]
        ), case["id"]


def test_minimums_of_roles_are_replaced_whole() -> None:
    for case in rows("scheduler/api/TestParseMinMemberInfoChanged"):
        state = State()
        for key in ("minTaskMemberInitial", "minTaskMemberChanged"):
            stated = case["input"][key]
            state.upsert_pod_group(
                {
                    "metadata": {"namespace": "ns", "name": "pg"},
                    "spec": {"minMember": 1, "minTaskMember": stated},
                }
            )
        job = state.jobs["ns/pg"]
        assert job.role_minimums == case["expect"]["expectedTaskMinAvailable"], case["id"]
        assert job.role_total == case["expect"]["expectedTaskMinAvailableTotal"], case["id"]


def test_why_a_pod_does_not_fit() -> None:
    for case in rows("scheduler/api/TestFitErrors"):
        row = case["input"]
        reasons = [Reason(case["expect"]["err"]["error"], 1)]
        if row["fiterr"]:
            reasons.append(
                Reason(
                    row["fiterr"]["error"].partition(" fit failed: ")[2], len(row["filterNodes"])
                )
            )
        errors = FitErrors(
            sum(one.count for one in reasons), reasons, row["fitStr"], row["hyperNode"]
        )
        assert errors.text == case["expect"]["want"], case["id"]


# --------------------------------------------------------------------------------------- sub-groups


@pytest.mark.parametrize("table", ["Basic", "Boundary", "Error"])
def test_which_sub_group_a_pod_is_in(table: str) -> None:
    for case in rows(f"scheduler/api/TestGetSubJobMatchValues_{table}"):
        labels = case["input"]["pod"]["metadata"].get("labels") or {}
        assert policy_of(case["input"]["policy"]).match(labels) == case["expect"]["expected"], case[
            "id"
        ]


def test_the_name_and_size_of_a_sub_group() -> None:
    for case in rows("scheduler/api/TestSubJobInfo_getPodSubJobID"):
        asked = case["input"]["args"]
        named = policy_of({"name": asked["policy"]})
        assert (
            f"{asked['job']}/{named.name}-{named.join(asked['matchValues'])}"
            == case["expect"]["want"]
        ), case["id"]
    for case in rows("scheduler/api/TestNewSubJobInfo"):
        assert (
            policy_of(case["input"]["args"]["policy"] or {}).size
            == case["expect"]["want"]["MinAvailable"]
        ), case["id"]


# --------------------------------------------------------------------------------- topology of jobs


def settled(
    job: Mapping[str, Any] | None,
    policies: list[dict[str, Any]],
    tiers: Mapping[str, int],
    top: int,
) -> Job:
    """A job of one pod a policy in a cluster whose root has this tier."""
    state = State()
    spec: dict[str, Any] = {"minMember": 1, "subGroupPolicy": policies}
    if job:
        spec["networkTopology"] = dict(job)
    state.upsert_pod_group({"metadata": {"namespace": "ns", "name": "pg"}, "spec": spec})
    for number, _ in enumerate(policies or [{}]):
        meta = {
            "namespace": "ns",
            "name": f"p{number}",
            "uid": f"p{number}",
            "labels": {f"k{number}": "v"},
            "annotations": {"scheduling.k8s.io/group-name": "pg"},
        }
        state.upsert_pod(
            {"metadata": meta, "spec": {"containers": []}, "status": {"phase": "Pending"}}
        )
    made = state.jobs["ns/pg"]
    settle_topology(
        HyperTree(state.nodes, {"h": (top - 1, "")} if top > 1 else {}, {}, {}, tiers), made
    )
    return made


def tier_of(group: Group) -> int | None:
    return group.effective.highest_tier if group.effective is not None else None


def test_soft_becomes_hard() -> None:
    for case in rows("scheduler/framework/TestConvertSoftToHardTopology"):
        policies = [
            {**one, "matchLabelKeys": [f"k{number}"]}
            for number, one in enumerate(case["input"]["subGroupPolicies"] or ())
        ]
        made = settled(
            case["input"]["jobNetworkTopology"],
            policies,
            {},
            case["context"]["highest_tier_in_cluster"],
        )
        expected = case["expect"]
        assert (made.effective.mode if made.effective else "") == expected["wantJobMode"], case[
            "id"
        ]
        assert tier_of(made) == expected["wantJobTier"], case["id"]
        assert made.has_hard_topology == expected["wantContainsHardTopology"], case["id"]
        parts = [made.sub_jobs[f"ns/pg/{one['name']}-v"] for one in policies]
        assert [tier_of(one) for one in parts] == (expected["wantSubGroupPolicyTiers"] or []), case[
            "id"
        ]
        assert [one.effective.mode for one in parts if one.effective] == (
            expected["wantSubGroupPolicyModes"] or []
        ), case["id"]


def test_the_tier_of_what_was_soft() -> None:
    for case in rows("scheduler/api/TestConvertToHardTopology"):
        made = settled(case["input"]["networkTopology"], [], {}, case["input"]["maxTier"])
        assert made.effective is not None
        assert (made.effective.mode, tier_of(made)) == (
            case["expect"]["wantMode"],
            case["expect"]["wantTier"],
        ), case["id"]
    for case in rows("scheduler/framework/TestAdjustNetworkTopologySpec_SoftToHardConversion"):
        (job,) = case["input"]["jobs"].values()
        top = case["input"]["hyperNodes"][ROOT]["tier"]
        made = settled(
            job["PodGroup"]["spec"]["networkTopology"], [], case["input"]["nameMap"], top
        )
        assert made.effective is not None
        assert (made.effective.mode, tier_of(made)) == (
            case["expect"]["wantJobMode"],
            case["expect"]["wantJobTier"],
        ), case["id"]


def test_tiers_by_name() -> None:
    for case in rows("scheduler/framework/TestSession_adjustNetworkTopologySpec"):
        (job,), (expected,) = (
            case["input"]["jobs"].values(),
            case["expect"]["expectedJobs"].values(),
        )
        stated = job["PodGroup"]["spec"]
        policies = [
            {**one, "name": "p", "matchLabelKeys": ["k0"]}
            for one in stated.get("subGroupPolicy") or ()
        ]
        made = settled(stated.get("networkTopology"), policies, case["input"]["nameMap"], 3)
        wanted = expected["PodGroup"]["spec"]
        assert tier_of(made) == wanted["networkTopology"].get("highestTierAllowed"), case["id"]
        for one in wanted.get("subGroupPolicy") or ():
            assert tier_of(made.sub_jobs["ns/pg/p-v"]) == one["networkTopology"].get(
                "highestTierAllowed"
            ), case["id"]


def test_who_is_hard() -> None:
    for case in rows("scheduler/api/TestSubJobInfo_IsHardTopologyMode"):
        made = settled(case["input"]["fields"]["networkTopology"], [], {}, 4)
        assert made.has_hard_topology == case["expect"]["expectedHard"], case["id"]
    for case in rows("scheduler/api/TestHasTopologyHardConstrain"):
        group = case["input"]["jobInfo"].get("PodGroup") or {"spec": {}}
        made = settled(group["spec"].get("networkTopology"), [], {}, 4)
        assert made.has_hard_topology == case["expect"]["expectedHasHard"], case["id"]
        assert (tier_of(made) or 0) == case["expect"]["expectedTier"], case["id"]


# ------------------------------------------------------------------------------ the tree of domains


def tree(objects: list[dict[str, Any]], nodes: list[dict[str, Any]] | None = None) -> HyperTree:
    """Of these HyperNodes, and of these nodes or else of the nodes that they name."""
    state = State()
    named = {
        (member.get("selector") or {}).get("exactMatch", {}).get("name", "")
        for one in objects
        for member in one["spec"].get("members") or ()
        if member["type"] == "Node"
    }
    for node in nodes or [{"metadata": {"name": name}} for name in sorted(named - {""})]:
        state.upsert_node({"metadata": node["metadata"], "status": {"allocatable": {"cpu": "1"}}})
    for one in objects:
        state.upsert_other("HyperNode", one)
    return tree_of(state)


def test_ancestors() -> None:
    for case in rows("scheduler/api/TestHyperNodesInfo_GetAncestors"):
        found = tree(case["input"]["initialHyperNodes"]).ancestors(case["input"]["hyperNodeName"])
        assert [name for name in found if name != ROOT] == case["expect"]["expectedAncestors"], (
            case["id"]
        )


def test_the_closest_domain_of_two() -> None:
    for case in rows("scheduler/api/TestGetLCAHyperNode"):
        asked = case["input"]
        found = tree(case["context"]["hypernodes"]).common(
            asked["hypernode"], asked["jobHyperNode"]
        )
        assert found.replace(ROOT, "") == case["expect"]["expectedLCA"], case["id"]


def test_members_by_label() -> None:
    for case in rows("scheduler/api/TestGetMembers"):
        member = {"type": "Node", "selector": case["input"]["selector"]}
        one = {"metadata": {"name": "h"}, "spec": {"tier": 1, "members": [member]}}
        made, names = (
            tree([one], case["input"]["nodes"]),
            [node["metadata"]["name"] for node in case["input"]["nodes"]],
        )
        assert [names[row] for row in made.by_name["h"].rows] == sorted(
            case["expect"]["expected"]
        ), case["id"]


def test_members_by_pattern_or_label() -> None:
    for case in rows("scheduler/api/TestHyperNodesInfo_NodeRegexOrLabelMatchHyperNode"):
        asked = case["input"]
        known = {node["metadata"]["name"]: node for node in case["context"].get("nodes") or ()}
        node = known.get(asked["nodeName"], {"metadata": {"name": asked["nodeName"]}})
        members = next(
            one
            for one in case["context"]["hypernodes"]
            if one["metadata"]["name"] == asked["hyperNodeName"]
        )["spec"]["members"]
        chosen = [
            one for one in members if one["type"] == "Node" and "exactMatch" not in one["selector"]
        ]
        made = tree([{"metadata": {"name": "h"}, "spec": {"tier": 1, "members": chosen}}], [node])
        assert bool(len(made.by_name["h"].rows)) == case["expect"]["expectedMatch"], case["id"]


@pytest.mark.parametrize("trouble", ["MultipleParents", "WithCycle"])
def test_a_tree_that_is_none(trouble: str) -> None:
    for case in rows(f"scheduler/api/TestHyperNodesInfo_UpdateHyperNode_{trouble}"):
        objects = {one["metadata"]["name"]: one for one in case["input"]["initialHyperNodes"]}
        assert bool(tree(list(objects.values())).left_out) == case["expect"]["expectError"], case[
            "id"
        ]
        mended = case["input"].get("correctHyperNode")
        if mended:
            made = tree(list({**objects, mended["metadata"]["name"]: mended}.values()))
            assert not made.left_out, case["id"]
            for name, nodes in case["expect"]["expectedRealNodesSet"].items():
                assert len(made.by_name[name].rows) == len(nodes), case["id"]


def test_the_lowest_domain_of_a_node() -> None:
    for case in rows("scheduler/util/TestFindHyperNodeForNode"):
        asked = case["input"]
        members = {
            name: [node["Name"] for node in nodes] for name, nodes in asked["hyperNodes"].items()
        }
        state = State()
        for name in sorted(
            {asked["nodeName"], *(node for nodes in members.values() for node in nodes)}
        ):
            state.upsert_node({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "1"}}})
        tiers = {int(tier): list(names) for tier, names in asked["hyperNodesSetByTier"].items()}
        infos = {name: (tier, "") for tier, names in tiers.items() for name in names}
        made = HyperTree(state.nodes, infos, members, tiers, {})
        assert made.leaf(state.nodes.rows[asked["nodeName"]]) == case["expect"]["expectedRes"], (
            case["id"]
        )


def test_nodes_of_the_shard_first() -> None:
    for case in rows("scheduler/util/TestGetPredicatedNodeByShard"):
        asked = case["input"]
        names = [node["Name"] for node in asked["predicateNodes"]]
        world = World(policy())
        world.nodes(*names)
        session = opened(world)
        session.shard_mode = asked["shardingMode"]
        session.node_scope = np.array([name in (asked["nodesInShard"] or ()) for name in names])
        groups = [
            [names[row] for row in group] for group in session.shard_groups(np.arange(len(names)))
        ]
        expected = [
            case["expect"]["expectedInShard"] or [],
            case["expect"]["expectedInOtherShard"] or [],
        ]
        assert [*groups, []][:2] == expected, case["id"]
