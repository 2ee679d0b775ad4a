"""One text for one reason: on the PodGroup, in the event, in the decisions; and why nobody was
evicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hekla.engine.model.decisions import Decisions
from hekla.engine.world import World, policy


def world(actions: str = "enqueue, allocate, preempt, reclaim", *plugins: str) -> World:
    made = World(
        policy(
            plugins=[*(plugins or ("priority", "gang", "conformance", "predicates"))],
            actions=actions,
        )
    )
    made.priority_class("high", 100)
    made.priority_class("low", 1)
    return made


def condition(decisions: Decisions, job: str) -> dict[str, Any]:
    (status,) = [one for one in decisions.pod_groups if one.key == f"default/{job}"]
    return next((one for one in status.conditions if one["type"] == "Waiting"), {})


def test_condition_event_and_decision_carry_the_same_text():
    made = world("allocate")
    made.nodes("n1", cpu=2)
    made.job("train", pods=3, cpu=1)

    decisions = made.run()

    text = made.why("train")
    assert text == (
        "train needs 3 pods of cpu=1; 2 fit. Nothing is left on any node for the others. It starts when 1 more node has cpu=1 free."
    )
    assert condition(decisions, "train")["message"] == text
    assert condition(decisions, "train")["reason"] == "Nodes"
    assert [one.message for one in decisions.events if one.reason == "Waiting"] == [text]


def numbers(made: World, job: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(made.decisions.explanations[f"default/{job}"].numbers())
    return found


def test_numbers_of_a_gang_that_fits_in_part():
    made = world("allocate")
    made.nodes("n1", cpu=2)
    made.job("train", pods=3, cpu=1)

    made.run()

    assert numbers(made, "train") == {
        "constraint": "nodes",
        "queue": "default",
        "needs": 3,
        "fit": 2,
        "missing": 1,
        "asks": {"cpu": "1"},
        "nodes": 1,
        "reasons": [],
        "shortages": [],
        "remedy": "It starts when 1 more node has cpu=1 free.",
        "noVictimBecause": "",
    }


def test_the_page_shows_what_is_told():
    made = world("allocate")
    made.nodes("n1", "n2", cpu=2)
    made.job("train", pods=2, cpu=4)

    made.run()

    page = (Path(__file__).parents[2] / "docs" / "vcctl.md").read_text(encoding="utf-8")
    assert numbers(made, "train") == json.loads(page.partition("```json\n")[2].partition("```")[0])


def test_numbers_of_nodes_that_are_too_small_in_two_resources():
    made = world("allocate")
    made.nodes("n1", "n2", cpu=2, memory=1 << 30)
    made.nodes("n3", cpu=8, memory=1 << 30)
    made.job("wants", pods=2, cpu=4, memory=2 << 30)

    made.run()

    found = numbers(made, "wants")
    assert (found["missing"], found["asks"]) == (2, {"cpu": "4", "memory": "2Gi"})
    assert {
        (one["resource"], one["nodes"], one["asked"], one["left"], one["missing"])
        for one in found["reasons"]
    } == {("cpu", 2, "4", "2", "2"), ("memory", 1, "2Gi", "1Gi", "1Gi")}


def test_numbers_of_a_queue_that_is_full():
    made = world("allocate", "gang", "predicates", "capacity")
    made.nodes("n1", cpu=8)
    made.queue("small", capability={"cpu": "2"})
    made.job("runs", pods=2, cpu=1, on=["n1", "n1"], queue="small")
    made.job("wants", pods=1, cpu=1, queue="small")

    made.run()

    (short,) = numbers(made, "wants")["shortages"]
    assert {
        name: short[name]
        for name in ("resource", "queue", "limit", "asked", "held", "most", "left", "missing")
    } == {
        "resource": "cpu",
        "queue": "small",
        "limit": "capability",
        "asked": "1",
        "held": "2",
        "most": "2",
        "left": "0",
        "missing": "1",
    }


def test_there_is_nothing_to_count_of_a_job_without_its_pods():
    made = world("allocate")
    made.nodes("n1", cpu=2)
    made.job("train", pods=1, min_available=2, cpu=1)

    made.run()

    explained = made.decisions.explanations["default/train"]
    assert (explained.constraint, explained.numbers()) == ("validity", "")


def test_the_condition_goes_when_the_job_starts():
    made = world("allocate")
    made.nodes("n1", cpu=2)
    made.job("train", pods=3, cpu=1)
    made.run()
    made.settle()
    made.nodes("n2", cpu=2)
    made.run()
    made.settle()

    made.run()
    made.settle()

    told = made.groups["default/train"]["status"]
    assert told["phase"] == "Running"
    assert "Waiting" not in {one["type"] for one in told["conditions"]}


def test_changing_words_are_written_every_ten_seconds_at_most():
    made = world("allocate")
    made.nodes("n1", cpu=4)
    made.queue("other")
    made.job("train", pods=1, cpu=4, phase="Inqueue")
    made.job("busy", pods=2, cpu=1, min_available=1, on=["n1", "n1"], queue="other")
    first = condition(made.run(), "train")["message"]
    made.settle()
    made.end("busy")
    made.job("short", pods=3, cpu=1, min_available=1, on=["n1", "n1", "n1"], queue="other")
    made.now += 1
    soon = made.run()
    assert made.why("train") != first
    assert not [one for one in soon.pod_groups if one.key == "default/train"]

    made.now += 10
    assert condition(made.run(), "train")["message"] == made.why("train")


def test_no_victim_because_nobody_is_lesser():
    made = world("allocate, preempt")
    made.nodes("n1", "n2", cpu=1)
    made.job("runs", pods=2, cpu=1, min_available=1, on=["n1", "n2"], priority="high")
    made.job("wants", pods=1, cpu=1, priority="low")

    made.run()

    assert made.why("wants").endswith(
        "No victim because 2 nodes have only pods that priority spares."
    )
    assert made.decisions.explanations["default/wants"].spared


def test_no_victim_because_nobody_there_may_go():
    made = world("allocate, preempt")
    made.nodes("n1", cpu=1)
    made.queue("other")
    made.job("runs", pods=1, cpu=1, on=["n1"], priority="low", queue="other")
    made.job("wants", pods=1, cpu=1, priority="high")

    made.run()

    assert made.why("wants").endswith(
        "No victim because 1 node has no running pod of queue default that may be evicted."
    )


def test_no_victim_because_all_of_them_would_not_be_enough():
    made = world("allocate, preempt")
    made.nodes("n1", cpu=2)
    made.job("runs", pods=2, cpu=1, min_available=0, on=["n1"], priority="low")
    made.job("wants", pods=1, cpu=4, priority="high")

    made.run()

    assert "No victim because" in made.why("wants")


def test_no_victim_because_it_may_not_preempt():
    made = world("allocate, preempt")
    made.nodes("n1", cpu=1)
    made.job("runs", pods=1, cpu=1, min_available=0, on=["n1"], priority="low")
    made.job("wants", pods=1, cpu=1, priority="high", spec={"preemptionPolicy": "Never"})

    made.run()

    assert made.why("wants").endswith("No victim because its preemptionPolicy is Never.")


def test_no_victim_because_the_queue_has_its_share():
    made = world("allocate, reclaim", "gang", "conformance", "predicates", "proportion")
    made.queue("other")
    made.nodes("n1", cpu=1)
    made.job("runs", pods=1, cpu=1, on=["n1"], queue="other", preemptable=False)
    made.job("wants", pods=1, cpu=1)

    made.run()

    share = "cpu=0 held and 1 asked of deserved 500m"
    assert made.why("wants").endswith(
        f"No victim because queue default would hold more than its share: {share}."
    )


def owned(made: World, group: str, owner: str) -> None:
    tree = made.groups[f"default/{group}"]
    tree["metadata"]["ownerReferences"] = [{"kind": "Job", "name": owner, "controller": True}]
    made.state.upsert_pod_group(tree)


def test_a_job_is_called_as_its_user_calls_it():
    made = world("enqueue, allocate")
    made.nodes("n1", cpu=1)
    made.state.upsert_queue(
        {
            "metadata": {"name": "line", "annotations": {"hekla.io/job-order": "strict-fifo"}},
            "status": {"state": "Open"},
        }
    )
    for name in ("first", "second"):
        made.job(f"{name}-0f1e", pods=1, cpu=2, queue="line")
        owned(made, f"{name}-0f1e", name)

    made.run()

    assert made.why("first-0f1e").startswith("first needs 1 pod of cpu=2")
    assert made.why("second-0f1e").startswith("second waits behind first in queue line")


def test_a_group_whose_pods_are_not_there_says_so_from_the_start():
    made = world("enqueue, allocate")
    made.nodes("n1", cpu=4)
    made.job("train", pods=0, min_available=2, phase="Pending")

    assert condition(made.run(), "train") | {"transitionID": ""} == {
        "type": "Waiting",
        "status": "True",
        "transitionID": "",
        "reason": "Validity",
        "message": "train has 0 of the 2 pods that it needs. It is looked at once they are there.",
    }


def test_too_few_pods_are_counted_by_role_where_there_are_several():
    made = world("enqueue, allocate")
    made.nodes("n1", cpu=4)
    made.job("train", pods=0, min_available=3, group={"minTaskMember": {"ps": 1, "w": 2}})
    made.pod("train-w-0", job="train", cpu=1, role="w")

    made.run()

    assert made.why("train").startswith(
        "train has 1 of the 3 pods that it needs (0 of 1 of role ps, 1 of 2 of role w)."
    )


def test_pods_beyond_the_minimum_say_why_they_wait():
    made = world("enqueue, allocate")
    made.nodes("n1", cpu=2)
    made.job("train", pods=3, cpu=1, min_available=1, on=["n1", "n1"])

    decisions = made.run()

    text = "train runs; 1 more pod of cpu=1 waits. 1 node: 1 lacks cpu (at most 0 free). The next starts when 1 more node has cpu=1 free."
    assert made.why("train") == condition(decisions, "train")["message"] == text
    made.nodes("n2", cpu=2)
    made.run()
    made.settle()
    made.run()
    made.settle()
    assert "Waiting" not in {
        one["type"] for one in made.groups["default/train"]["status"]["conditions"]
    }


def test_an_eviction_says_for_whom():
    made = world("allocate, preempt")
    made.nodes("n1", cpu=1)
    made.job("runs", pods=1, cpu=1, min_available=0, on=["n1"], priority="low")
    made.job("wants", pods=1, cpu=1, priority="high")

    (eviction,) = made.run().evictions

    assert eviction.reason == "preempt"
    assert (
        eviction.text == "preempt: room for job default/wants of queue default, priority 100 over 1"
    )
    assert (
        made.why("wants")
        == "wants waits for room that is being freed. It starts when the pods that are being ended have left."
    )


def test_a_reclaimed_pod_says_for_which_queue():
    made = world("allocate, reclaim", "gang", "conformance", "predicates", "proportion")
    made.queue("other")
    made.nodes("n1", cpu=2)
    made.job("runs", pods=2, cpu=1, min_available=0, on=["n1", "n1"], queue="other")
    made.job("wants", pods=1, cpu=1)

    (eviction,) = made.run().evictions

    assert eviction.text == (
        "reclaim: room for job default/wants of queue default, which takes back its share from queue other"
    )


def test_a_closed_queue_says_what_lets_its_jobs_in():
    made = world("enqueue, allocate", "gang", "predicates", "proportion")
    made.nodes("n1", cpu=4)
    made.queue("shut", state="Closed")
    made.job("train", pods=1, cpu=1, queue="shut", phase="Pending", min_resources={"cpu": 1})

    made.run()

    assert made.why("train") == (
        "train waits to enter queue shut: queue shut is not open but Closed. It enters once the queue is opened."
    )


def test_gates_are_named():
    made = world("allocate")
    made.nodes("n1", cpu=4)
    made.job("train", pods=2, cpu=1, spec={"schedulingGates": [{"name": "example.com/data"}]})

    made.run()

    assert made.why("train") == (
        "train has pods that may not be scheduled yet (gates: example.com/data). It is looked at once their gates are lifted."
    )


def test_a_job_that_stands_back_says_where_the_servers_words_are():
    made = world("allocate")
    made.nodes("n1", cpu=4)
    made.job("train", pods=1, cpu=1)
    made.state.bind_failed(made.run().binds[0].pod, made.now)

    made.run()

    assert made.why("train") == (
        "train cannot start: its last bind was refused by the API server; it stands back before it is tried again. "
        "It is tried again within a minute; the events of its pods have the server's words."
    )


def test_what_preempt_and_what_reclaim_found_are_both_said():
    made = world("allocate, preempt, reclaim")
    made.nodes("n1", "n2", cpu=1)
    made.queue("other", reclaimable=False)
    made.job("peer", pods=1, cpu=1, min_available=0, on=["n1"], priority="high")
    made.job("kept", pods=1, cpu=1, min_available=0, on=["n2"], queue="other")
    made.job("wants", pods=1, cpu=1, priority="low")

    made.run()

    assert made.why("wants").endswith(
        "No victim because 1 node has no running pod of queue default that may be evicted, 1 node has only pods that priority spares; "
        "2 nodes have no running pod of other queues that may be evicted."
    )
