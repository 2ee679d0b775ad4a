"""What a job does not say is filled in on its way in.  Reference: api-and-admission 7.1."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.admission import Settings
from tests.admission.objects import (
    Tree,
    ask,
    bare,
    denied,
    job,
    partition,
    patched,
    scenario,
    task,
    template,
)

MUTATE, VALIDATE = "/jobs/mutate", "/jobs/validate"
TIERS = (
    "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously"
)
BOTH = {"highestTierAllowed": 1, "highestTierName": "rack"}


@pytest.mark.parametrize(
    ("obj", "field", "value"),
    [
        scenario(1, bare(task()), "queue", "default"),
        scenario(2, bare(task()), "schedulerName", "volcano"),
        scenario(3, bare(task()), "maxRetry", 3),
        scenario(4, bare(task("a", 2), task("b", 3)), "minAvailable", 5),
        scenario(5, bare(task("a", 2, minAvailable=1), task("b", 3)), "minAvailable", 4),
        scenario(
            6, bare(task(), plugins={"tensorflow": []}), "plugins", {"tensorflow": [], "svc": []}
        ),
        scenario(
            7,
            bare(task(), plugins={"mpi": ["--master=task-1"]}),
            "plugins",
            {"mpi": ["--master=task-1"], "svc": [], "ssh": []},
        ),
        scenario(
            8, bare(task(), plugins={"mpi": []}), "plugins", {"mpi": [], "svc": [], "ssh": []}
        ),
        scenario(9, bare(task(), plugins={"pytorch": []}), "plugins", {"pytorch": [], "svc": []}),
        scenario(
            10,
            bare(task(), plugins={"tensorflow": [], "svc": ["--enable-networking"]}),
            "plugins",
            {"tensorflow": [], "svc": ["--enable-networking"]},
        ),
        scenario(220, bare(task("a", 2), maxRetry=0, minAvailable=0), "minAvailable", 2),
        scenario(223, bare(task(), plugins={"ray": []}), "plugins", {"ray": [], "svc": []}),
    ],
)
def test_what_a_job_does_not_say_is_filled_in(obj: Tree, field: str, value: Any):
    assert patched(MUTATE, obj)["spec"][field] == value


@pytest.mark.scenario("api-and-admission", 11)
def test_what_a_job_says_stays():
    said = task("a", 2, minAvailable=2, maxRetry=5)
    obj = bare(said, minAvailable=2, queue="custom", schedulerName="custom-sched", maxRetry=10)

    assert ask(MUTATE, obj).patch is None
    assert patched(MUTATE, obj) == obj


@pytest.mark.scenario("api-and-admission", 12)
@pytest.mark.scenario("api-and-admission", 13)
def test_unnamed_tasks_are_numbered_and_get_their_retries():
    obj = bare(*({"replicas": 1, "template": template()} for _ in range(4)))

    patch = ask(MUTATE, obj).patch

    assert patch is not None
    step = next(step for step in patch if step["path"] == "/spec/tasks")
    assert step["op"] == "replace"
    assert [(each["name"], each["maxRetry"]) for each in step["value"]] == [
        (f"default{i}", 3) for i in range(4)
    ]


@pytest.mark.parametrize(
    ("given", "least"),
    [
        scenario(14, task(replicas=1), 1),
        scenario(14, task(replicas=2, minAvailable=1), 1, id="14b"),
        scenario(15, task(replicas=1, partitionPolicy=partition(1, 1, 1)), 1),
        scenario(16, task(replicas=9, partitionPolicy=partition(3, 3, 2)), 6),
        scenario(17, task(replicas=4, partitionPolicy=partition(2, 2)), 4),
        scenario(18, task(replicas=5), 5),
        scenario(18, task(replicas=5, minAvailable=0), 0, id="explicit zero"),
    ],
)
def test_the_least_of_a_task_is_its_partitions_or_all_of_it(given: Tree, least: int):
    assert patched(MUTATE, bare(given))["spec"]["tasks"][0]["minAvailable"] == least


@pytest.mark.scenario("api-and-admission", 19)
def test_mpi_adds_no_dependency_between_its_tasks():
    given = bare(task("master"), task("worker", 2), plugins={"mpi": []})

    assert all("dependsOn" not in each for each in patched(MUTATE, given)["spec"]["tasks"])


@pytest.mark.scenario("api-and-admission", 224)
@pytest.mark.parametrize(
    ("policy", "expected"), [("", "ClusterFirstWithHostNet"), ("Default", "Default")]
)
def test_a_task_on_the_host_network_keeps_cluster_names(policy: str, expected: str):
    spec = {"hostNetwork": True, **({"dnsPolicy": policy} if policy else {})}

    result = patched(MUTATE, bare(task(template=template(**spec))))

    assert result["spec"]["tasks"][0]["template"]["spec"]["dnsPolicy"] == expected


@pytest.mark.parametrize("timeout", ["5 minutes", "5", "1d", "٣m", "9" * 400 + "h"])
def test_a_duration_that_go_cannot_read_is_refused_with_its_form(timeout: str):
    for obj, where in (
        (
            job(policies=[{"event": "PodFailed", "action": "RestartJob", "timeout": timeout}]),
            "spec.policies.timeout",
        ),
        (
            job(task(policies=[{"exitCode": 3, "action": "RestartJob", "timeout": timeout}])),
            "spec.tasks.policies.timeout",
        ),
        (job(runningEstimate=timeout), "spec.runningEstimate"),
    ):
        text = denied(VALIDATE, obj)
        assert (
            f'{where}: Invalid value: "{timeout}": a duration is written as in Go' in text
            and "5m" in text
        )
    assert ask(
        VALIDATE, job(policies=[{"event": "PodFailed", "action": "RestartJob", "timeout": "1h5m"}])
    ).allowed


def test_other_operations_are_no_business_of_the_mutator():
    assert denied(MUTATE, job(), operation="DELETE") == "expect operation to be 'CREATE' "


def test_an_update_is_filled_in_as_its_job_once_was():
    """Decision 0188: a list that a second apply replaces comes without what was filled in."""
    unnamed = {"replicas": 2, "template": task()["template"]}
    manifest = {
        **job(),
        "spec": {
            "tasks": [unnamed, {**unnamed, "replicas": 3}],
            "plugins": {"mpi": ["--master=default0"]},
        },
    }
    stored = patched(MUTATE, manifest)
    applied = {**stored, "spec": {**stored["spec"], "tasks": manifest["spec"]["tasks"]}}

    assert ask(VALIDATE, applied, stored).allowed, (
        "where a chart registers the mutator for creates alone"
    )
    assert patched(MUTATE, applied, operation="UPDATE") == stored
    assert patched(MUTATE, manifest, operation="UPDATE") == stored, "replaced as a whole"


def test_an_update_may_still_set_the_minimum_to_nothing():
    stored = patched(MUTATE, bare(task(replicas=2)))

    spec = {**stored["spec"], "minAvailable": 0}
    assert patched(MUTATE, {**stored, "spec": spec}, old=stored)["spec"] == spec


def test_a_duration_that_a_client_spells_anew_is_no_change():
    policy = {"event": "PodPending", "action": "AbortJob", "timeout": "90s"}
    stored = patched(MUTATE, job(task(policies=[policy]), policies=[policy], runningEstimate="1h"))
    spelled = {**policy, "timeout": "1m30s"}

    assert (
        ask(
            VALIDATE,
            job(task(policies=[spelled]), policies=[spelled], runningEstimate="1h0m0s"),
            stored,
        ).message
        == ""
    )
    assert "may not change" in denied(
        VALIDATE, job(task(policies=[policy]), policies=[{**policy, "timeout": "91s"}]), stored
    )


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"maxRetry": 5},
        {"policies": [{"event": "PodFailed", "action": "AbortJob"}]},
    ],
)
def test_what_an_apply_really_changes_is_refused(change: dict[str, object]):
    stored = patched(MUTATE, bare(task()))

    assert denied(VALIDATE, bare(task(**change)), stored).startswith(
        "job updates may not change fields other than"
    )


def test_the_first_scheduler_name_is_the_default_one():
    settings = Settings(scheduler_names=("mine", "volcano"))

    assert patched(MUTATE, bare(task()), settings=settings)["spec"]["schedulerName"] == "mine"
