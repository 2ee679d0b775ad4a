"""What commands about jobs print over prepared answers, to the blank, and what they ask the server.
Reference: cli 9.1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.answers import (
    BUS,
    JOBS,
    THREE_DAYS_AGO,
    Answers,
    Tree,
    command,
    job,
    printed,
    vcctl,
)

HEADER = (
    "Name       Creation       Phase       JobType     Replicas    Min   "
    "Pending   Running   Succeeded   Failed    Unknown     RetryCount"
)
ROW = (
    "test-job   0001-01-01                 Batch       0           0     "
    "0         0         0           0         0           0"
)
DEFAULT_JOBS = f"{JOBS}/namespaces/default/jobs"


@pytest.mark.scenario("cli", 1)
def test_job_list(server: Answers):
    server.gives[DEFAULT_JOBS] = [job("test-job")]

    lines = printed(vcctl(server, "job", "list")).splitlines()

    assert [line.rstrip() for line in lines] == [HEADER, ROW]
    assert len(lines[0]) == len(lines[1]) == 11 + 15 + 12 * 3 + 6 + 10 + 10 + 12 + 10 + 12 + 10


@pytest.mark.scenario("cli", 2)
@pytest.mark.parametrize("flags", [("-q", "Q"), ("-S", "S"), ("--selector", "one")])
def test_job_list_filters(server: Answers, flags: tuple[str, str]):
    server.gives[DEFAULT_JOBS] = [
        job("one", queue="Q", schedulerName="S"),
        job("another-with-a-long-name", queue="R"),
    ]

    lines = printed(vcctl(server, "job", "list", *flags)).splitlines()

    assert [line[:8] for line in lines] == ["Name   C", "one    0"]


@pytest.mark.scenario("cli", 3)
def test_job_list_asks_for_its_namespace(server: Answers):
    server.gives[f"{JOBS}/namespaces/ns/jobs"] = [job("a", "ns"), job("b", "ns")]

    assert len(printed(vcctl(server, "job", "list", "-n", "ns")).splitlines()) == 3


@pytest.mark.scenario("cli", 4)
def test_job_list_over_namespaces(server: Answers):
    server.gives[f"{JOBS}/jobs"] = [job("a", "kube-sysyem"), job("b", "default")]

    lines = printed(vcctl(server, "job", "list", "--all-namespaces")).splitlines()

    assert [line[:14] for line in lines] == ["Namespace     ", "kube-sysyem   ", "default       "]


def test_job_list_of_nothing(server: Answers):
    server.gives[DEFAULT_JOBS] = []

    assert printed(vcctl(server, "job", "list")) == "No resources found\n"


def test_vjobs_measures_all_jobs_and_keeps_its_header(server: Answers):
    server.gives[DEFAULT_JOBS] = [job("a-name-of-some-length", schedulerName="S")]

    result = command("vjobs", "-S", "other", "--master", server.url)

    assert printed(result).split("Creation")[0] == "Name" + " " * 20


def test_job_list_in_other_forms(server: Answers):
    server.gives[DEFAULT_JOBS] = [job("a")]

    assert printed(vcctl(server, "job", "list", "-o", "name")) == "job.batch.volcano.sh/a\n"
    assert (
        json.loads(printed(vcctl(server, "job", "list", "-o", "json")))["items"][0]["kind"] == "Job"
    )
    wide = printed(vcctl(server, "job", "list", "-o", "wide"))
    assert wide.splitlines()[0].split()[-2:] == ["Queue", "Scheduler"]


FULL_JOB = {
    "metadata": {"name": "test-job", "namespace": "default", "labels": {"b": "2", "a": "1"}, "uid": "u1", "resourceVersion": "7",
                 "generation": 1, "creationTimestamp": "2026-01-02T03:04:05Z"},
    "spec": {
        "minAvailable": 2, "schedulerName": "volcano", "plugins": {"env": [], "ssh": ["a", "b"]},
        "tasks": [{"name": "t", "replicas": 2, "template": {"spec": {
            "restartPolicy": "Never", "imagePullSecrets": [{"name": "secret"}],
            "containers": [{"name": "c", "image": "busybox", "command": ["sleep", "5"], "workingDir": "/w",
                            "ports": [{"containerPort": 80, "name": "http"}],
                            "resources": {"requests": {"cpu": "1000m"}, "limits": {"cpu": "1000m", "memory": "100Mi"}}}],
        }}}],
    },
    "status": {"running": 2, "minAvailable": 2, "state": {"phase": "Running"}, "controlledResources": {"plugin-ssh": "ssh"},
               "conditions": [{"status": "Pending", "lastTransitionTime": "2026-01-02T03:04:06Z"}]},
}  # fmt: skip

VIEW = """Name:       \ttest-job
Namespace:  \tdefault
Labels:     \t{"a":"1","b":"2"}
Annotations:\t<none>
API Version:\t
Kind:       \t
Metadata:
  Creation Timestamp:\t2026-01-02 03:04:05 +0000 UTC
  Generate Name:     \t
  Generation:        \t1
  Resource Version:  \t7
  UID:               \tu1
Spec:
  Min Available:     \t2
  Plugins:
    Env:\t[]
    Ssh:\t[a b]
  Scheduler Name:    \tvolcano
  Tasks:
    Name:\tt
    Replicas:\t2
    Template:
      Metadata:
        Annotations:
          Cri . Cci . Io / Container - Type:          \t
          Kubernetes . Io / Availablezone:            \t
          Network . Alpha . Kubernetes . Io / Network:\t
        Creation Timestamp:\t0001-01-01 00:00:00 +0000 UTC
      Spec:
        Containers:
          Command:
            sleep
            5
          Image:\tbusybox
          Name: \tc
          Ports:
            Container Port:\t80
            Name:          \thttp
          Resources:
            Limits:
              Cpu:   \t1
              Memory:\t100Mi
            Requests:
              Cpu:   \t1
              Memory:\t0
            Working Dir:\t/w
        Image Pull Secrets:
          Name:     \tsecret
        Restart Policy:   \tNever
Status:
  Running:      \t2
  Min Available:\t2
  State:
    Phase:\tRunning
  Controlled Resources:
    plugin-ssh: \tssh
"""
CONDITIONS = """  Conditions:
    Status\tTransitionTime
    Pending \t2026-01-02 03:04:06 +0000 UTC\x20
"""


def event(name: str, **fields: Any) -> Tree:
    return {
        "metadata": {"name": name, "namespace": "default"},
        "type": "Normal",
        "reason": "Why",
        **fields,
    }


@pytest.mark.scenario("cli", 5)
def test_job_view(server: Answers):
    server.gives[f"{DEFAULT_JOBS}/test-job"] = FULL_JOB
    server.gives["/api/v1/namespaces/default/events"] = [
        event(
            "test-job.123",
            firstTimestamp=THREE_DAYS_AGO,
            source={"component": "ctl", "host": "h"},
            message=" said ",
        ),
        event(
            "test-job.456",
            firstTimestamp=THREE_DAYS_AGO,
            lastTimestamp=THREE_DAYS_AGO,
            count=2,
            message="twice",
        ),
        event("test-job-t-0.789"),
    ]

    text = printed(vcctl(server, "job", "view", "-N", "test-job"))

    head, _, events = text.partition("Events:\n")
    assert head == VIEW + CONDITIONS
    line = "{:<15}\t{:<40}\t{:<30}\t{:<40}\t{}\n"
    assert events == (
        line.format("Type", "Reason", "Age", "Form", "Message")
        + line.format(*["-------"] * 5)
        + line.format("Normal", "Why", "3d", "ctl, h", "said")
        + line.format("Normal", "Why", "3d (x2 over 3d)", "", "twice")
    )


def test_vjobs_with_a_name_shows_no_conditions(server: Answers):
    server.gives[f"{DEFAULT_JOBS}/test-job"] = FULL_JOB
    server.gives["/api/v1/namespaces/default/events"] = []

    assert (
        printed(command("vjobs", "-n", "test-job", "--master", server.url))
        == VIEW + "Events: \t<none>\n"
    )


@pytest.mark.scenario("cli", 6)
def test_job_run(server: Answers):
    result = vcctl(
        server,
        "job",
        "run",
        "-N",
        "test",
        "-n",
        "test",
        "--requests",
        "cpu=1000m,memory=100Mi",
        "--limits",
        "",
    )

    assert printed(result) == "run job test successfully\n"
    asked = server.asked[-1]
    assert (asked.method, asked.path) == ("POST", f"{JOBS}/namespaces/test/jobs")
    assert asked.body == {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "test", "namespace": "test"},
        "spec": {
            "minAvailable": 1,
            "schedulerName": "volcano",
            "tasks": [
                {
                    "replicas": 1,
                    "template": {
                        "metadata": {"name": "test", "labels": {"job.volcano.sh": "test"}},
                        "spec": {
                            "restartPolicy": "Never",
                            "containers": [
                                {
                                    "name": "test",
                                    "image": "busybox",
                                    "imagePullPolicy": "IfNotPresent",
                                    "resources": {"requests": {"cpu": "1000m", "memory": "100Mi"}},
                                }
                            ],
                        },
                    },
                }
            ],
        },
    }


def test_vsub_splits_its_command_and_reads_its_environment(server: Answers):
    environment = {
        "VOLCANO_DEFAULT_IMAGE": "alpine",
        "VOLCANO_DEFAULT_JOB_NAMESPACE": "team",
        "VOLCANO_SCHEDULER_NAME": "mine",
    }

    result = command(
        "vsub", "-n", "j", "-c", "sh -c 'echo a b'", "--master", server.url, environment=environment
    )

    assert printed(result) == "run job j successfully\n"
    asked = server.asked[-1]
    assert asked.path == f"{JOBS}/namespaces/team/jobs"
    assert asked.body["spec"]["schedulerName"] == "mine"
    container = asked.body["spec"]["tasks"][0]["template"]["spec"]["containers"][0]
    assert (container["image"], container["command"]) == ("alpine", ["sh", "-c", "echo a b"])


def test_job_run_takes_a_file(server: Answers, tmp_path: Path):
    file = tmp_path / "job.yaml"
    file.write_text("metadata: {name: from-file}\nspec: {minAvailable: 3}\n")

    assert (
        printed(vcctl(server, "job", "run", "-f", str(file), "-n", "ns"))
        == "run job from-file successfully\n"
    )
    assert server.asked[-1].path == f"{JOBS}/namespaces/ns/jobs"
    assert server.asked[-1].body["spec"] == {"minAvailable": 3}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run",), "Failed to run job: job name cannot be left blank"),
        (("run", "-f", "job.json"), "Failed to run job: only support yaml file"),
        (
            ("run", "-f", "gone.yaml"),
            "Failed to run job: failed to read file, err: open gone.yaml: no such file or directory",
        ),
        (
            ("run", "-N", "a", "-R", "cpu"),
            "Failed to run job: invalid argument syntax cpu, expected <resource>=<value>",
        ),
        (("view", "-N", "x"), 'Failed to view job: jobs.batch.volcano.sh "x" not found'),
        (
            ("view",),
            "Failed to view job: job name (specified by --name or -N) is mandatory to view a particular job",
        ),
        (("suspend",), "Failed to suspend job: job name is mandatory to suspend a particular job"),
        (("resume",), "Failed to resume job: job name is mandatory to resume a particular job"),
        (("delete",), "Failed to delete job: job name is mandatory to delete a particular job"),
    ],
)
def test_job_failures_are_printed_and_end_with_255(
    server: Answers, words: tuple[str, ...], message: str
):
    result = vcctl(server, "job", *words)

    assert (result.stdout, result.returncode) == (message + "\n", 255)


@pytest.mark.scenario("cli", 7)
@pytest.mark.parametrize(
    ("name", "words", "action"),
    [
        ("vcctl", ("job", "suspend", "-N", "j"), "AbortJob"),
        ("vcctl", ("job", "resume", "-N", "j"), "ResumeJob"),
        ("vsuspend", ("-n", "j"), "AbortJob"),
        ("vresume", ("-n", "j"), "ResumeJob"),
    ],
)
def test_suspend_and_resume_leave_a_command(
    server: Answers, name: str, words: tuple[str, ...], action: str
):
    server.gives[f"{DEFAULT_JOBS}/j"] = job("j")

    assert printed(command(name, *words, "--master", server.url)) == ""

    asked = server.asked[-1]
    assert (asked.method, asked.path) == ("POST", f"{BUS}/namespaces/default/commands")
    reference = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "j",
        "uid": "uid-of-j",
        "controller": True,
        "blockOwnerDeletion": True,
    }
    assert asked.body["metadata"]["generateName"] == f"j-{action.lower()}-"
    assert asked.body["metadata"]["ownerReferences"] == [reference]
    assert (asked.body["action"], asked.body["target"]) == (action, reference)


@pytest.mark.scenario("cli", 7)
def test_delete_and_cancel(server: Answers):
    server.gives[f"{DEFAULT_JOBS}/j"] = job("j")

    assert printed(vcctl(server, "job", "delete", "-N", "j")) == "delete job j successfully\n"
    assert (
        printed(command("vcancel", "-n", "j", "--master", server.url))
        == "cancel job j successfully\n"
    )
    assert (
        command("vcancel", "--master", server.url).stdout
        == "Failed to: job name is mandatory to cancel a particular job\n"
    )
    assert (
        command("vsuspend", "--master", server.url).stdout
        == "Failed to: job name is mandatory to suspend a particular job\n"
    )


def test_a_near_job_is_offered_beside_the_servers_words(server: Answers):
    server.gives[DEFAULT_JOBS] = [job("train-1"), job("other")]

    result = vcctl(server, "job", "view", "-N", "trian-1")

    assert result.stdout == 'Failed to view job: jobs.batch.volcano.sh "trian-1" not found\n'
    assert result.stderr == "Did you mean train-1?\n"


def test_a_broken_kubeconfig_comes_before_a_missing_name(tmp_path: Path):
    result = command("vcctl", "job", "view", "--kubeconfig", str(tmp_path / "gone"))

    assert result.returncode == 255
    assert result.stdout.startswith("Failed to view job: ") and "gone" in result.stdout


def test_without_a_configuration_the_local_port_is_asked():
    result = command("vcctl", "job", "list")

    assert result.returncode == 255
    assert "localhost:8080" in result.stdout
