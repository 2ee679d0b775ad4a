"""What would become of a job at this moment: where it starts, who has to go, or why it waits."""

from __future__ import annotations

from tests.simulator.whatif.copies import NOW, SHARING, Small


def test_a_queue_that_grows_lets_its_job_start():
    small = Small()
    small.node("n1")
    small.node("n2")
    small.queue("q", capability={"cpu": "2"})
    small.job("train", pods=2, cpu="3", queue="q")

    before = small.ask("train", SHARING)
    small.change("queue.q.capability.cpu=+8")
    after = small.ask("train", SHARING)

    assert not before.now and "capability of queue q" in before.why
    assert after.now
    assert after.placed == {"default/train-main-0": "n1", "default/train-main-1": "n2"}
    assert not after.leavers


def test_asking_changes_nothing_in_the_copy():
    small = Small()
    small.node("n1")
    small.job("train", cpu="3")

    first, second = small.ask("train"), small.ask("train")

    assert first.placed == second.placed == {"default/train-main-0": "n1"}
    assert "nodeName" not in small.copy.of_kind("Pod")["default/train-main-0"]["spec"]


def test_who_would_have_to_go_is_named_with_the_reason():
    small = Small()
    small.node("n1")
    small.priority("high", 1000)
    small.job("rival", cpu="4", on=("n1",), minimum=0)
    small.job("urgent", cpu="4")

    before = small.ask("urgent")
    small.change("job.urgent.priority=high")
    after = small.ask("urgent")

    assert not before.now and not before.leavers
    assert after.now and after.placed == {"default/urgent-main-0": "n1"}
    (leaver,) = after.leavers
    assert (leaver.pod, leaver.job, leaver.node) == ("default/rival-main-0", "default/rival", "n1")
    assert leaver.why.startswith("preempt: room for job default/urgent")


def test_further_nodes_are_found_by_the_job():
    small = Small()
    small.node("n1", cpu="4")
    small.job("rival", cpu="4", on=("n1",))
    small.job("train", pods=2, cpu="4")

    small.change("node=add:2x n1")

    assert set(small.ask("train").placed.values()) == {"what-if-1", "what-if-2"}


def test_a_job_of_a_drained_node_is_placed_elsewhere_or_waits():
    small = Small()
    small.node("n1")
    small.node("n2")
    small.job("train", cpu="3", on=("n1",))

    small.change("node.n1=drain")
    moved = small.ask("train")
    small.change("node.n2=cordon")
    stuck = small.ask("train")

    assert moved.placed == {"default/train-main-0": "n2"}
    assert not stuck.now and "cordoned" in stuck.why


def test_pods_that_are_being_deleted_are_waited_for():
    small = Small()
    small.node("n1")
    small.job("old", cpu="4", on=("n1",))
    old = small.copy.of_kind("Pod")["default/old-main-0"]
    leaving = {**old["metadata"], "deletionTimestamp": "2001-09-09T01:46:40Z"}
    small.copy.put("Pod", {**old, "metadata": leaving})
    small.job("train", cpu="4")

    answer = small.ask("train")

    assert answer.now and answer.placed == {"default/train-main-0": "n1"}


def test_a_group_that_waits_to_be_let_in_is_let_in():
    small = Small()
    small.node("n1")
    small.job("train", cpu="2", phase="Pending")
    assert small.ask("train").placed == {"default/train-main-0": "n1"}


def test_a_start_is_foretold_by_the_walltimes_of_what_runs():
    small = Small()
    small.node("n1")
    small.job("short", cpu="2", on=("n1",), since=NOW - 600, walltime="1h")
    small.job("long", cpu="2", on=("n1",), since=NOW - 600, walltime="2h")
    small.job("train", cpu="2")

    answer = small.ask("train")

    assert answer.start == 3000 and not answer.now
    assert answer.ends == ["default/short"]
    assert answer.placed == {"default/train-main-0": "n1"}
    assert "n" in answer.why and answer.constraint == "nodes"


def test_who_says_no_walltime_is_named_where_nothing_foretells_a_start():
    small = Small()
    small.node("n1")
    small.job("forever", cpu="4", on=("n1",))
    small.job("train", cpu="2")

    answer = small.ask("train")

    assert answer.start is None and answer.endless == ["default/forever"]


def test_groups_without_pods_stand_in_the_line_with_what_they_ask_for():
    small = Small()
    small.node("n1")
    small.job("first", pods=2, cpu="2", phase="Pending", since=NOW - 900)
    for number in range(2):
        small.copy.drop("Pod", f"default/first-main-{number}")
    small.job("second", cpu="1", since=NOW - 60)

    assert not small.ask("second").now, "the room is taken by the first"
    assert small.ask("second").others == {"default/first": 2}


def test_a_job_that_runs_would_go_on():
    small = Small()
    small.node("n1")
    small.job("train", cpu="2", on=("n1",))
    answer = small.ask("train")
    assert answer.ran and answer.now and not answer.placed


def test_an_object_that_the_scheduler_cannot_read_is_left_out_here_too():
    small = Small()
    small.node("n1")
    small.queue("odd", weight="heavy")
    small.job("train", cpu="2")
    answer = small.ask("train")
    assert answer.now and "Queue odd" in answer.notes[0]


def test_a_job_that_the_copy_does_not_have():
    answer = Small().ask("nobody")
    assert answer.start is None and "no pods" in answer.why
