"""Job plugins: what they add to pods, and what they put beside them."""

import base64
import json
from typing import Any

import pytest

from hekla.api import batch
from hekla.controllers.job.plugins import PluginError, plugins_of
from hekla.controllers.job.plugins.arguments import Arguments
from hekla.controllers.job.plugins.ssh import Ssh
from hekla.controllers.job.pods import template_of
from tests.controllers.job.world import container, job_of, task


def with_init() -> dict[str, Any]:
    return {"spec": {"containers": [container()], "initContainers": [container(name="before")]}}


def pod(job: batch.Job, task_name: str, index: int = 0) -> dict[str, Any]:
    found = next(t for t in job.spec.tasks if t.name == task_name)
    return template_of(job, found, plugins_of(job)).pod(index)


def env(container: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in container.get("env", ())}


def dependents(job: batch.Job) -> dict[str, dict[str, Any]]:
    return {
        f"{c.kind.kind}/{c.name}": c.make()
        for plugin in plugins_of(job)
        for c in plugin.dependents(job)
    }


def test_arguments_follow_the_grammar_of_go() -> None:
    defaults = {"port": 22, "name": "x", "on": False, "off": True}
    read = Arguments(defaults, ["--port=80", "-name", "y", "--on", "--off=false"])
    assert read.values == {"port": 80, "name": "y", "on": True, "off": False} and not read.complaint
    stopped = Arguments(defaults, ["--port=80", "--unknown=1", "--name=y"])
    assert (
        stopped.values["port"] == 80
        and stopped.values["name"] == "x"
        and "unknown" in stopped.complaint
    )
    assert Arguments(defaults, ["--port=many", "--name=y"]).values == defaults


@pytest.mark.scenario("controllers", 53)
def test_a_plugin_that_does_not_exist() -> None:
    with pytest.raises(PluginError, match="failed to get plugin wrong"):
        plugins_of(job_of(task("a"), plugins={"wrong": []}))
    with pytest.raises(PluginError, match="did you mean pytorch"):
        plugins_of(job_of(task("a"), plugins={"pytorhc": []}))


@pytest.mark.scenario("controllers", 42)
def test_every_container_learns_its_index_and_the_hosts() -> None:
    job = job_of(
        task("my-task", 2, template=with_init()), plugins={"ssh": [], "env": [], "svc": []}
    )
    made = pod(job, "my-task", 1)
    for each in (*made["spec"]["containers"], *made["spec"]["initContainers"]):
        assert [entry["name"] for entry in each["env"]] == [
            "VC_MY_TASK_HOSTS",
            "VC_MY_TASK_NUM",
            "VK_TASK_INDEX",
            "VC_TASK_INDEX",
        ]
        assert env(each)["VC_TASK_INDEX"] == env(each)["VK_TASK_INDEX"] == "1"
        assert each["env"][0]["valueFrom"]["configMapKeyRef"] == {
            "name": "train-svc",
            "key": "VC_MY_TASK_HOSTS",
        }
        assert {mount["mountPath"] for mount in each["volumeMounts"]} == {
            "/root/.ssh",
            "/etc/volcano",
        }


@pytest.mark.scenario("controllers", 38)
@pytest.mark.scenario("controllers", 14)
def test_svc_lists_the_hosts_and_names_them() -> None:
    job = job_of(task("ps"), task("my-worker", 2), plugins={"svc": []})
    beside = dependents(job)
    assert set(beside) == {"ConfigMap/train-svc", "Service/train", "NetworkPolicy/train"}
    assert beside["ConfigMap/train-svc"]["data"] == {
        "ps.host": "train-ps-0.train",
        "VC_PS_HOSTS": "train-ps-0.train",
        "VC_PS_NUM": "1",
        "my_worker.host": "train-my-worker-0.train\ntrain-my-worker-1.train",
        "VC_MY_WORKER_HOSTS": "train-my-worker-0.train,train-my-worker-1.train",
        "VC_MY_WORKER_NUM": "2",
    }
    service = beside["Service/train"]["spec"]
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"] is False
    assert service["selector"] == {
        "volcano.sh/job-name": "train",
        "volcano.sh/job-namespace": "default",
    }
    made = pod(job, "my-worker", 1)["spec"]
    assert (made["hostname"], made["subdomain"]) == ("train-my-worker-1", "train")
    assert made["volumes"] == [{"name": "train-svc", "configMap": {"name": "train-svc"}}]


@pytest.mark.scenario("controllers", 16)
def test_a_task_without_pods_has_no_hosts() -> None:
    job = job_of(task("a", 0), plugins={"svc": []})
    assert dependents(job)["ConfigMap/train-svc"]["data"] == {
        "a.host": "",
        "VC_A_HOSTS": "",
        "VC_A_NUM": "0",
    }


def test_a_fixed_hostname_is_one_host() -> None:
    template = {"spec": {"containers": [container()], "hostname": "fixed", "subdomain": "else"}}
    job = job_of(task("a", 3, template=template), plugins={"svc": []})
    assert dependents(job)["ConfigMap/train-svc"]["data"]["VC_A_HOSTS"] == "fixed.else"
    assert pod(job, "a")["spec"]["hostname"] == "fixed"


@pytest.mark.scenario("controllers", 40)
@pytest.mark.scenario("controllers", 41)
def test_svc_does_less_when_told() -> None:
    arguments = [
        "--disable-network-policy=true",
        "--inject-hosts-env=false",
        "--publish-not-ready-addresses",
    ]
    job = job_of(task("a", template=with_init()), plugins={"svc": arguments})
    beside = dependents(job)
    assert set(beside) == {"ConfigMap/train-svc", "Service/train"}
    assert beside["Service/train"]["spec"]["publishNotReadyAddresses"] is True
    made = pod(job, "a")["spec"]
    assert all("env" not in each for each in (*made["containers"], *made["initContainers"]))


@pytest.mark.scenario("controllers", 39)
@pytest.mark.scenario("controllers", 52)
def test_ssh_makes_one_key_pair_a_job() -> None:
    job = job_of(task("a", 2), plugins={"ssh": ["--no-root"]})
    data = {
        key: base64.b64decode(text).decode()
        for key, text in dependents(job)["Secret/train-ssh"]["data"].items()
    }
    assert data["id_rsa"].startswith("-----BEGIN RSA PRIVATE KEY-----")
    assert data["id_rsa.pub"] == data["authorized_keys"] and data["id_rsa.pub"].startswith(
        "ssh-rsa "
    )
    assert data["config"] == (
        "StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"
        "Host train-a-0\n  HostName train-a-0.train\n  Port 22\n"
        "Host train-a-1\n  HostName train-a-1.train\n  Port 22\n"
    )
    made = pod(job, "a")["spec"]
    (volume,) = made["volumes"]
    assert volume["name"] == "train-ssh" and volume["secret"]["defaultMode"] == 0o600
    assert made["containers"][0]["volumeMounts"] == [
        {"name": "train-ssh", "mountPath": "/root/.ssh", "subPath": ".ssh"}
    ]


@pytest.mark.scenario("controllers", 52)
def test_ssh_arguments() -> None:
    assert (Ssh([]).path, Ssh([]).port) == ("/root/.ssh", 22)
    assert Ssh(["--ssh-key-file-path=/a/b"]).path == "/a/b"
    assert Ssh(["--ssh-port=2026"]).port == 2026
    assert Ssh(["--ssh-port=-10"]).port == Ssh(["--ssh-port=x"]).port == 22
    job = job_of(
        task("a"),
        plugins={"ssh": ["--ssh-private-key=secret", "--ssh-public-key=open", "--ssh-port=2026"]},
    )
    data = {
        key: base64.b64decode(text).decode()
        for key, text in dependents(job)["Secret/train-ssh"]["data"].items()
    }
    assert (data["id_rsa"], data["id_rsa.pub"]) == ("secret", "open") and "  Port 2026\n" in data[
        "config"
    ]


@pytest.mark.scenario("controllers", 45)
def test_tensorflow_knows_its_cluster() -> None:
    job = job_of(
        task("ps", 2),
        task("worker", 2),
        task("chief"),
        name="train-123",
        plugins={"tensorflow": ["--port=5000"]},
    )

    def at(name: str, count: int) -> list[str]:
        return [f"train-123-{name}-{index}.train-123:5000" for index in range(count)]

    config = env(pod(job, "ps", 0)["spec"]["containers"][0])["TF_CONFIG"]
    assert config == json.dumps(
        {
            "cluster": {"ps": at("ps", 2), "worker": at("worker", 2), "chief": at("chief", 1)},
            "task": {"type": "ps", "index": 0},
        },
        separators=(",", ":"),
    )
    assert json.loads(env(pod(job, "worker", 1)["spec"]["containers"][0])["TF_CONFIG"])["task"] == {
        "type": "worker",
        "index": 1,
    }
    single = job_of(task("worker"), plugins={"tensorflow": []})
    assert env(pod(single, "worker")["spec"]["containers"][0]) == {}


@pytest.mark.scenario("controllers", 46)
@pytest.mark.scenario("controllers", 47)
def test_pytorch_ranks() -> None:
    job = job_of(
        task("master"),
        task("worker"),
        task("extra"),
        name="test-pytorch",
        plugins={"pytorch": ["--port=5000"]},
    )
    master, worker, extra = (
        pod(job, name)["spec"]["containers"][0] for name in ("master", "worker", "extra")
    )
    common = {
        "MASTER_ADDR": "test-pytorch-master-0.test-pytorch",
        "MASTER_PORT": "5000",
        "WORLD_SIZE": "2",
    }
    assert (
        env(master) == {**common, "RANK": "0"}
        and env(worker) == {**common, "RANK": "1"}
        and env(extra) == common
    )
    assert master["ports"] == [
        {"name": "pytorchjob-port", "containerPort": 5000, "protocol": "TCP"}
    ]
    lonely = pod(job_of(task("worker"), plugins={"pytorch": []}), "worker")["spec"]["containers"][0]
    assert "env" not in lonely and "ports" not in lonely


@pytest.mark.scenario("controllers", 48)
def test_pytorch_workers_can_wait_for_the_master() -> None:
    template = {
        "spec": {"containers": [container(ports=[{"name": "mine", "containerPort": 23456}])]}
    }
    arguments = [
        "--wait-master-enabled=true",
        "--wait-master-timeout=7",
        "--wait-master-image=mine:1",
    ]
    job = job_of(
        task("master", template=template),
        task("worker", 2, template=template),
        plugins={"pytorch": arguments},
    )
    master, worker = pod(job, "master")["spec"], pod(job, "worker", 1)["spec"]
    assert "initContainers" not in master and len(worker["containers"][0]["ports"]) == 1
    (waiting,) = worker["initContainers"]
    assert waiting["name"] == "wait-for-master" and waiting["image"] == "mine:1"
    assert (
        "train-master-0.train 23456" in waiting["command"][2] and "left=7" in waiting["command"][2]
    )
    asked = {
        "spec": {"containers": [container()], "initContainers": [container(name="wait-for-master")]}
    }
    again = job_of(task("master"), task("worker", template=asked), plugins={"pytorch": arguments})
    assert len(pod(again, "worker")["spec"]["initContainers"]) == 1


@pytest.mark.scenario("controllers", 49)
def test_mpi_tells_the_master_its_workers() -> None:
    job = job_of(
        task("master", template=with_init()), task("worker", 2), plugins={"mpi": ["--port=5000"]}
    )
    master = pod(job, "master")["spec"]
    for each in (*master["containers"], *master["initContainers"]):
        assert env(each)["MPI_HOST"] == "train-worker-0.train,train-worker-1.train"
        assert each["ports"][0]["containerPort"] == 5000
    assert "env" not in pod(job, "worker")["spec"]["containers"][0]
    empty = job_of(task("master"), task("worker", 0), plugins={"mpi": []})
    assert env(pod(empty, "master")["spec"]["containers"][0]) == {"MPI_HOST": ""}
    alone = pod(job_of(task("master"), plugins={"mpi": []}), "master")["spec"]["containers"][0]
    assert "env" not in alone and "ports" not in alone


@pytest.mark.scenario("controllers", 50)
def test_hcclrank_finds_a_rank() -> None:
    def rank(job: batch.Job, name: str, index: int = 0) -> str | None:
        found: str | None = pod(job, name, index)["metadata"]["annotations"].get("hccl/rankIndex")
        return found

    job = job_of(task("master", 2), task("worker", 2), task("other"), plugins={"hcclrank": []})
    assert [rank(job, "master", 1), rank(job, "worker", 1), rank(job, "other")] == ["1", "3", None]
    assert rank(job_of(task("worker", 2), plugins={"hcclrank": []}), "worker", 1) == "1"
    named = job_of(task("m"), task("w"), plugins={"hcclrank": ["--master=m", "--worker=w"]})
    assert [rank(named, "m"), rank(named, "w")] == ["0", "1"]
    kept = {
        "metadata": {"annotations": {"hccl/rankIndex": "9"}},
        "spec": {"containers": [container()]},
    }
    assert rank(job_of(task("worker", template=kept), plugins={"hcclrank": []}), "worker") == "9"
    spoken = {
        "spec": {"containers": [container(), container(env=[{"name": "RANK", "value": "5"}])]}
    }
    assert rank(job_of(task("worker", template=spoken), plugins={"hcclrank": []}), "worker") == "5"
    both = job_of(task("master"), task("worker", 2), plugins={"hcclrank": [], "pytorch": []})
    assert rank(both, "worker", 1) == "2", "the rank that pytorch gave"


@pytest.mark.scenario("controllers", 51)
def test_ray_starts_head_and_workers() -> None:
    def named(name: str) -> dict[str, Any]:
        return {"spec": {"containers": [container(name="side"), {"name": name, "image": "ray"}]}}

    job = job_of(
        task("head", template=named("head")),
        task("worker", 2, template=named("worker")),
        plugins={"ray": ["--port=2345"]},
    )
    side, head = pod(job, "head")["spec"]["containers"]
    assert "command" not in side
    assert head["command"] == [
        "sh",
        "-c",
        "ray start --head --block --dashboard-host=0.0.0.0 --port=2345 --dashboard-port=8265 --ray-client-server-port=10001",
    ]
    assert [(port["name"], port["containerPort"]) for port in head["ports"]] == [
        ("gcs", 2345),
        ("dashboard", 8265),
        ("client-server", 10001),
    ]
    assert (
        pod(job, "worker")["spec"]["containers"][1]["command"][2]
        == "ray start --block --address=train-head-0.train:2345"
    )
    service = dependents(job)["Service/train-head-svc"]["spec"]
    assert service["selector"]["volcano.sh/task-spec"] == "head"
    assert [(port["port"], port["targetPort"]) for port in service["ports"]] == [
        (2345, "gcs"),
        (8265, "dashboard"),
        (10001, "client-server"),
    ]
    with pytest.raises(PluginError, match="job train doesn't have head task head"):
        pod(job_of(task("worker"), plugins={"ray": []}), "worker")
