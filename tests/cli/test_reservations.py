"""What `vcctl reservation` prints, and what it sends."""

from __future__ import annotations

from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.cli.answers import Answers, command

PATH = "/apis/scheduling.hekla.io/v1alpha1/reservations"
NIGHTLY: dict[str, Any] = {
    "metadata": {"name": "nightly"},
    "spec": {
        "nodes": {"count": 2},
        "window": {"schedule": "0 20 * * *", "timeZone": "Europe/Vienna", "duration": "2h"},
        "owners": {"queues": ["physics"], "users": ["ada"]},
        "drain": "Evict",
    },
    "status": {
        "state": "Draining",
        "reason": "RunsIntoIt",
        "message": "1 pod of others may still run when it opens",
        "start": "2026-12-01T19:00:00Z",
        "end": "2026-12-01T21:00:00Z",
        "nodes": ["n1", "n2"],
        "occupants": [
            {"pod": "lab/a-0", "node": "n1"},
            {"pod": "lab/b-0", "node": "n2", "until": "2026-12-01T19:30:00Z"},
        ],
        "past": 3,
    },
}


@pytest.fixture
def server(running: Answers) -> Answers:
    running.gives.clear()
    running.asked.clear()
    return running


def reservation(server: Answers, *words: str) -> CompletedProcess[str]:
    return command("vcctl", "reservation", *words, "--master", server.url)


def test_list_and_view(server: Answers) -> None:
    server.gives[PATH] = [NIGHTLY, {"metadata": {"name": "new"}, "spec": {}}]
    server.gives[f"{PATH}/nightly"] = NIGHTLY
    assert reservation(server, "list").stdout == (
        "Name      State      From                   To                     Nodes   Owners                   Past\n"
        "nightly   Draining   2026-12-01T19:00:00Z   2026-12-01T21:00:00Z   2       queue physics,user ada   3\n"
        "new       Unknown    -                      -                      0       nobody                   0\n"
    )
    assert reservation(server, "view", "nightly").stdout == (
        "Name:      nightly\n"
        "State:     Draining (RunsIntoIt)\n"
        "Message:   1 pod of others may still run when it opens\n"
        'Window:    2026-12-01T19:00:00Z to 2026-12-01T21:00:00Z ("0 20 * * *" in Europe/Vienna, for 2h)\n'
        "Past:      3 windows\n"
        "Owners:    queue physics,user ada\n"
        "Drain:     Evict\n"
        "Nodes:     n1, n2\n"
        "Still there: lab/a-0 on n1, with no known end\n"
        "Still there: lab/b-0 on n2, until 2026-12-01T19:30:00Z\n"
    )


def test_create_sends_what_the_flags_say_and_refuses_a_window_that_is_none(server: Answers) -> None:
    made = reservation(
        server, "create", "run", "--count", "2", "--resources", "cpu=4", "--schedule", "@daily",
        "--duration", "1h", "--queues", "physics,chemistry", "--evict",
    )  # fmt: skip
    assert made.stdout == "created reservation run\n"
    assert server.asked[-1].body["spec"] == {
        "nodes": {"count": 2, "resources": {"cpu": "4"}},
        "window": {"duration": "1h", "schedule": "@daily"},
        "owners": {"queues": ["physics", "chemistry"]},
        "drain": "Evict",
    }
    wrong = reservation(server, "create", "run", "--nodes", "n1", "--start", "tomorrow")
    assert wrong.returncode == 255
    assert 'spec.window.start = "tomorrow": no time such as' in wrong.stdout + wrong.stderr


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--selector|disk in (a|--start|now|--duration|1h", '--selector = "disk in (a": pairs such as disk=ssd,zone=b'),
        ("--count|1|--resources|4cpu|--start|now|--duration|1h", '--resources = "4cpu": pairs such as cpu=4'),
        ("--nodes|n1|--start|2020-01-01T00:00:00Z|--duration|1h", "spec.window: it has closed for the last time"),
        ("--nodes|n1|--schedule|0 0 30 2 *|--duration|1h", 'spec.window.schedule = "0 0 30 2 *": it opens never'),
    ],
)  # fmt: skip
def test_create_refuses(server: Answers, flags: str, said: str) -> None:
    wrong = reservation(server, "create", "run", *flags.split("|"))
    assert wrong.returncode == 255 and said in wrong.stdout + wrong.stderr


def test_delete(server: Answers) -> None:
    server.gives[f"{PATH}/nightly"] = NIGHTLY
    assert reservation(server, "delete", "nightly").stdout == "deleted reservation nightly\n"
    assert server.asked[-1].method == "DELETE"
