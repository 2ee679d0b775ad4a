"""What commands print over prepared answers, to the blank, and what they ask the server.
Reference: cli 9.1 to 9.4."""

from __future__ import annotations

import json
import time
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from hekla.api.text.times import stamp
from tests.cli.answers import BUS, FLOW, JOBS, SCHEDULING, Answers, Tree, command

THREE_DAYS_AGO = stamp(time.time() - 3 * 86400 - 60)


@pytest.fixture
def server(running: Answers) -> Answers:
    running.gives.clear()
    running.asked.clear()
    return running


def vcctl(server: Answers, *words: str) -> CompletedProcess[str]:
    return command("vcctl", *words, "--master", server.url)


def printed(result: CompletedProcess[str]) -> str:
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def job(name: str, namespace: str = "default", **spec: Any) -> Tree:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-of-{name}"},
        "spec": spec,
    }


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


# -- queues ----------------------------------------------------------------------------------------

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


# -- flows and templates ---------------------------------------------------------------------------

FLOWS, TEMPLATES = f"{FLOW}/namespaces/default/jobflows", f"{FLOW}/namespaces/default/jobtemplates"
FLOW_TABLE = """\
Name            Namespace    Phase      Age    
test-jobflow    default      Succeed    3d     
"""  # noqa: W291 (columns are padded)
TEMPLATE_TABLE = """\
Name                Namespace    
test-jobtemplate    default      
"""  # noqa: W291 (columns are padded)


def a_flow() -> Tree:
    metadata = {"name": "test-jobflow", "namespace": "default", "creationTimestamp": THREE_DAYS_AGO}
    return {"metadata": metadata, "spec": {}, "status": {"state": {"phase": "Succeed"}}}


@pytest.mark.scenario("cli", 12)
def test_flows_and_templates_are_listed(server: Answers):
    template = {"metadata": {"name": "test-jobtemplate", "namespace": "default"}, "spec": {}}
    server.gives |= {FLOWS: [a_flow()], f"{FLOWS}/test-jobflow": a_flow()}
    server.gives |= {TEMPLATES: [template], f"{TEMPLATES}/test-jobtemplate": template}

    assert printed(vcctl(server, "jobflow", "list")) == FLOW_TABLE
    assert printed(vcctl(server, "jobflow", "get", "-N", "test-jobflow")) == FLOW_TABLE
    assert printed(vcctl(server, "jobtemplate", "list")) == TEMPLATE_TABLE
    assert printed(vcctl(server, "jobtemplate", "get", "-N", "test-jobtemplate")) == TEMPLATE_TABLE


@pytest.mark.scenario("cli", 13)
def test_flows_are_deleted_by_name(server: Answers):
    server.gives[f"{FLOWS}/test-jobflow"] = a_flow()

    assert (
        printed(vcctl(server, "jobflow", "delete", "-N", "test-jobflow"))
        == "Deleted JobFlow: default/test-jobflow\n"
    )
    assert (
        vcctl(server, "jobflow", "delete").stdout
        == "Failed to delete jobflow: jobflow name must be specified\n"
    )
    assert (
        vcctl(server, "jobtemplate", "delete").stdout
        == "Failed to delete jobtemplate: job template name must be specified\n"
    )


@pytest.mark.scenario("cli", 14)
@pytest.mark.parametrize(
    ("group", "kind"), [("jobflow", "JobFlow"), ("jobtemplate", "JobTemplate")]
)
def test_flows_come_and_go_by_file(server: Answers, tmp_path: Path, group: str, kind: str):
    file = tmp_path / "two.yaml"
    file.write_text("metadata: {name: test-a}\nspec: {}\n---\nmetadata: {name: test-b}\nspec: {}\n")
    for name in ("test-a", "test-b"):
        server.gives[f"{FLOW}/namespaces/default/{group}s/{name}"] = {"metadata": {"name": name}}

    created, deleted = (
        vcctl(server, group, "create", "-f", str(file)),
        vcctl(server, group, "delete", "-f", str(file)),
    )

    assert printed(created) == f"Created {kind}: default/test-a\nCreated {kind}: default/test-b\n"
    assert printed(deleted) == f"Deleted {kind}: default/test-a\nDeleted {kind}: default/test-b\n"


YAML = """\
apiVersion: flow.volcano.sh/v1alpha1
kind: JobFlow
metadata:
  name: test-jobflow
  namespace: default
spec: {}
status:
  state: {}
"""


@pytest.mark.scenario("cli", 15)
def test_a_flow_is_described(server: Answers):
    metadata = {"name": "test-jobflow", "namespace": "default", "managedFields": [{"manager": "m"}]}
    server.gives[f"{FLOWS}/test-jobflow"] = {
        "metadata": metadata,
        "spec": {},
        "status": {"state": {}},
    }

    assert printed(vcctl(server, "jobflow", "describe", "-N", "test-jobflow")) == YAML
    text = printed(vcctl(server, "jobflow", "describe", "-N", "test-jobflow", "-o", "json"))
    assert list(json.loads(text)) == ["kind", "apiVersion", "metadata", "spec", "status"]
    assert text.startswith('{\n  "kind": "JobFlow",\n')
    assert (
        printed(vcctl(server, "jobflow", "describe", "-N", "test-jobflow", "-o", "xml"))
        == "Unsupported format: xml"
    )


# -- pods ------------------------------------------------------------------------------------------

PODS = "/api/v1/namespaces/default/pods"


def pod(
    name: str,
    namespace: str = "default",
    labels: Tree | None = None,
    annotations: Tree | None = None,
) -> Tree:
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": labels or {},
        "annotations": annotations or {},
        "creationTimestamp": THREE_DAYS_AGO,
    }
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    }


POD_TABLE = """\
Name          Ready      Status         Restart  Age       
my-pod        0/1        Running        0        3d        
"""  # noqa: W291 (columns are padded)


@pytest.mark.scenario("cli", 16)
@pytest.mark.parametrize("flags", [(), ("-n", "default"), ("-j", "my-job1")])
def test_pods_are_listed(server: Answers, flags: tuple[str, ...]):
    server.gives[PODS] = [pod("my-pod")]

    assert printed(vcctl(server, "pod", "list", *flags)) == POD_TABLE


@pytest.mark.scenario("cli", 17)
def test_pods_of_a_queue_are_found_by_label_and_annotation(server: Answers):
    label = {"volcano.sh/queue-name": "my-queue1"}
    server.gives[PODS] = [
        pod("pod1", labels=label),
        pod("pod2", labels={**label, "volcano.sh/job-name": "my-job1"}),
        pod("pod3", annotations={"scheduling.volcano.sh/queue-name": "my-queue1"}),
        pod("pod4"),
    ]

    lines = printed(vcctl(server, "pod", "list", "-q", "my-queue1")).splitlines()

    assert [line.split()[0] for line in lines] == ["Name", "pod1", "pod2", "pod3"]


@pytest.mark.scenario("cli", 18)
def test_the_job_and_the_queue_of_pods_must_agree(server: Answers):
    server.gives[PODS] = [pod("pod1", labels={"volcano.sh/queue-name": "my-queue1"})]

    assert (
        len(printed(vcctl(server, "pod", "list", "-j", "my-job1", "-q", "my-queue1")).splitlines())
        == 2
    )
    other = vcctl(server, "pod", "list", "-j", "my-job1", "-q", "my-queue2")
    assert (
        other.stdout
        == "Failed to list pod: the input vcjob my-job1 does not match the queue my-queue2\n"
    )
    assert other.returncode == 255


@pytest.mark.scenario("cli", 19)
def test_pods_of_all_namespaces_are_sorted(server: Answers):
    server.gives["/api/v1/pods"] = [pod("worker-0", "team-b"), pod("worker-0", "team-a")]

    lines = printed(vcctl(server, "pod", "list", "--all-namespaces")).splitlines()

    assert [line.split()[0] for line in lines] == ["Namespace", "team-a", "team-b"]


# -- configuration ---------------------------------------------------------------------------------


def test_a_broken_kubeconfig_comes_before_a_missing_name(tmp_path: Path):
    result = command("vcctl", "job", "view", "--kubeconfig", str(tmp_path / "gone"))

    assert result.returncode == 255
    assert result.stdout.startswith("Failed to view job: ") and "gone" in result.stdout


def test_without_a_configuration_the_local_port_is_asked():
    result = command("vcctl", "job", "list")

    assert result.returncode == 255
    assert "localhost:8080" in result.stdout
