"""What commands about queues print and ask.  Reference: cli 9.2."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.answers import (
    BUS,
    SCHEDULING,
    Answers,
    Tree,
    command,
    printed,
    vcctl,
)

QUEUES, GROUPS = f"{SCHEDULING}/queues", f"{SCHEDULING}/podgroups"


def queue(name: str, **spec: Any) -> Tree:
    return {
        "metadata": {"name": name, "uid": "q1"},
        "spec": spec,
        "status": {"state": "Open", "running": 4},
    }


def group(name: str, phase: str) -> Tree:
    return {
        "metadata": {"name": "g", "namespace": "n"},
        "spec": {"queue": name},
        "status": {"phase": phase},
    }


QUEUE_TABLE = """\
Name                     Weight  State   Parent  Inqueue Pending Running Unknown Completed
default                  1       Open    root    0       0       1       0       2       \n"""


@pytest.mark.scenario("cli", 9)
def test_queues_are_listed_with_their_groups(server: Answers):
    server.gives[QUEUES] = [queue("default", weight=1, parent="root")]
    server.gives[f"{QUEUES}/default"] = queue("default", weight=1, parent="root")
    server.gives[GROUPS] = [
        group("default", "Running"),
        group("default", "Completed"),
        group("default", "Completed"),
        group("default", "Odd"),
        group("gone", "Running"),
    ]

    assert printed(vcctl(server, "queue", "list")) == QUEUE_TABLE
    assert printed(vcctl(server, "queue", "get", "-n", "default")) == QUEUE_TABLE
    server.gives[QUEUES] = []
    assert printed(vcctl(server, "queue", "list")) == "No resources found\n"


@pytest.mark.scenario("cli", 9)
def test_queues_are_created_and_deleted(server: Answers):
    server.gives[f"{QUEUES}/normal-case"] = queue("normal-case")

    assert printed(vcctl(server, "queue", "create")) == ""
    assert server.asked[-1].body == {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "test"},
        "spec": {"weight": 1},
        "status": {"state": "Open"},
    }
    assert printed(vcctl(server, "queue", "delete", "-n", "normal-case")) == ""


@pytest.mark.scenario("cli", 10)
@pytest.mark.scenario("cli", 11)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("get", "Failed to get queue: name is mandatory to get the particular queue details"),
        ("delete", "Failed to delete queue: queue name must be specified"),
        ("operate -a close", "Failed to operate queue: queue name must be specified"),
        ("operate -n q", "Failed to operate queue: action can not be null"),
        (
            "operate -n q -a invalid",
            "Failed to operate queue: action invalid invalid, valid actions are open, close and update",
        ),
        (
            "operate -n q -a update",
            "Failed to operate queue: when update queue q, weight must be specified, the value must be greater than 0",
        ),
    ],
)
def test_queue_failures(server: Answers, words: str, message: str):
    result = vcctl(server, "queue", *words.split())

    assert (result.stdout, result.returncode) == (message + "\n", 255)


@pytest.mark.scenario("cli", 11)
@pytest.mark.parametrize(
    ("action", "command_action"), [("open", "OpenQueue"), ("close", "CloseQueue")]
)
def test_queues_are_opened_and_closed_by_command(server: Answers, action: str, command_action: str):
    server.gives[f"{QUEUES}/q"] = queue("q")

    assert printed(vcctl(server, "queue", "operate", "-n", "q", "-a", action)) == ""

    asked = server.asked[-1]
    assert asked.path == f"{BUS}/namespaces/default/commands"
    assert asked.body["metadata"]["generateName"] == f"q-{command_action.lower()}-"
    assert asked.body["target"]["kind"] == "Queue"
    assert asked.body["action"] == command_action


@pytest.mark.scenario("cli", 11)
def test_the_weight_of_a_queue_is_patched(server: Answers):
    server.gives[f"{QUEUES}/q"] = queue("q")

    assert printed(vcctl(server, "queue", "operate", "-n", "q", "-a", "update", "-w", "3")) == ""
    assert (server.asked[-1].method, server.asked[-1].body) == ("PATCH", {"spec": {"weight": 3}})


def test_vqueues_trusts_the_queues_own_numbers(server: Answers):
    server.gives[QUEUES] = [queue("default", weight=1)]

    assert printed(command("vqueues", "--master", server.url)) == (
        "Name                     Weight  State   Inqueue Pending Running Unknown \n"
        "default                  1       Open    0       0       4       0       \n"
    )
