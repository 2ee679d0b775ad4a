"""Checklist 126 to 144: the kubelet, with real processes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.cluster import objects
from tests.cluster.api import JSON_PATCH, PATIENCE, Api, Tree, eventually
from tests.cluster.conftest import Kubectl, Namespace
from tests.cluster.objects import container, run, shell


class Node:
    """The node that runs containers, and the few words in which stories about its pods are told."""

    def __init__(self, api: Api, ns: Namespace, name: str) -> None:
        self.api, self.ns, self.name = api, ns, name

    def start(self, pod: Tree) -> str:
        self.api.create(self.ns.path("pods"), pod)
        return str(pod["metadata"]["name"])

    def script(self, name: str, script: str, **spec: Any) -> str:
        return self.start(shell(name, self.name, script, **spec))

    def ended(self, name: str, seconds: float = PATIENCE) -> Tree:
        return self.api.wait(
            self.ns.path("pods", name),
            lambda pod: pod["status"]["phase"] in ("Succeeded", "Failed"),
            seconds,
        )

    def running(self, name: str, seconds: float = PATIENCE) -> Tree:
        return self.api.wait(
            self.ns.path("pods", name), lambda pod: pod["status"]["phase"] == "Running", seconds
        )

    def log(self, name: str, **query: Any) -> str:
        answer = self.api.get(self.ns.path("pods", name, "log"), **query)
        assert answer.status == 200, answer
        return answer.text

    def said(self, name: str, script: str, **spec: Any) -> list[str]:
        """The lines that a script printed, run to its end."""
        self.script(name, script, **spec)
        self.ended(name)
        return self.log(name).splitlines()


@pytest.fixture
def node(api: Api, ns: Namespace, real_node: str) -> Node:
    return Node(api, ns, real_node)


def restarts(pod: Tree) -> int:
    """How often the pod's first container was started again."""
    return int((pod["status"].get("containerStatuses") or [{}])[0].get("restartCount", 0))


def state(pod: Tree, index: int = 0) -> Tree:
    """What the pod's container ended with."""
    return dict(pod["status"]["containerStatuses"][index]["state"]["terminated"])


@pytest.mark.parametrize(
    ("name", "script", "phase", "code", "reason"),
    [("three", "exit 3", "Failed", 3, "Error"), ("zero", "exit 0", "Succeeded", 0, "Completed")],
)
def test_item_126_exit_codes(
    node: Node, name: str, script: str, phase: str, code: int, reason: str
) -> None:
    node.script(name, script)
    pod = node.ended(name)
    assert (pod["status"]["phase"], state(pod)["exitCode"], state(pod)["reason"]) == (
        phase,
        code,
        reason,
    )


def test_item_127_no_such_command_and_a_signal(node: Node) -> None:
    node.script("nosuch", "nosuchcmd")
    # A child, as process 1 may ignore it; $$ is one $ to the pod.
    node.script("signalled", "sh -c 'kill -TERM $$$$'; exit $?")
    assert state(node.ended("nosuch"))["exitCode"] == 127
    assert state(node.ended("signalled"))["exitCode"] == 143


def test_item_127_out_of_memory(node: Node) -> None:
    greedy = container(
        "python3", "-c", "print(len(b'x' * 200_000_000))", resources={"limits": {"memory": "64Mi"}}
    )
    node.start(run("greedy", node.name, containers=[greedy]))
    ended = state(node.ended("greedy"))
    if ended["exitCode"] == 0:
        pytest.skip("this node has no control groups to limit memory with")
    assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")


def test_item_128_restarts(node: Node) -> None:
    node.script("crashing", "exit 1", restartPolicy="OnFailure")
    node.script("again", "exit 0", restartPolicy="Always")
    path = node.ns.path("pods", "crashing")

    def backing_off(pod: Tree) -> bool:
        status = (pod["status"].get("containerStatuses") or [{}])[0]
        waiting = status.get("state", {}).get("waiting", {})
        return bool(
            waiting.get("reason") == "CrashLoopBackOff" and status.get("restartCount", 0) >= 1
        )

    pod = node.api.wait(path, backing_off)
    assert pod["status"]["phase"] == "Running"
    status = pod["status"]["containerStatuses"][0]
    assert (
        "back-off 10s restarting failed container=c pod=crashing"
        in status["state"]["waiting"]["message"]
    )
    assert status["lastState"]["terminated"]["exitCode"] == 1
    node.api.wait(node.ns.path("pods", "again"), lambda pod: restarts(pod) >= 1)


@pytest.mark.slow
def test_item_128_the_back_off_doubles(node: Node) -> None:
    node.script("doubling", "exit 1", restartPolicy="OnFailure")
    path = node.ns.path("pods", "doubling")

    def message(pod: Tree) -> str:
        return str(
            (pod["status"].get("containerStatuses") or [{}])[0]
            .get("state", {})
            .get("waiting", {})
            .get("message", "")
        )

    node.api.wait(path, lambda pod: "back-off 10s" in message(pod))
    node.api.wait(path, lambda pod: "back-off 20s" in message(pod))


def test_item_129_init_containers(node: Node, kubectl: Kubectl) -> None:
    share = {"volumeMounts": [{"name": "v", "mountPath": "/share"}]}
    inits = [
        container(
            "sh", "-c", f"echo {word} >> $PWD/../order 2>/dev/null; echo {word}", name=word, **share
        )
        for word in ("one", "two")
    ]
    node.start(
        shell(
            "ordered",
            node.name,
            "echo main",
            initContainers=inits,
            volumes=[{"name": "v", "emptyDir": {}}],
        )
    )
    failing = [container("sh", "-c", "exit 1", name="bad")]
    node.start(shell("stuck", node.name, "echo main", initContainers=failing))
    pod = node.ended("ordered")
    ends = {
        s["name"]: s["state"]["terminated"]
        for s in pod["status"]["initContainerStatuses"] + pod["status"]["containerStatuses"]
    }
    assert [ends[name]["exitCode"] for name in ("one", "two", "c")] == [0, 0, 0]
    assert (
        ends["one"]["finishedAt"]
        <= ends["two"]["startedAt"]
        <= ends["two"]["finishedAt"]
        <= ends["c"]["startedAt"]
    )
    assert node.ended("stuck")["status"]["phase"] == "Failed"
    assert "Init:Error" in kubectl("-n", node.ns.name, "get", "pod", "stuck")


def test_item_129_a_sidecar(node: Node) -> None:
    sidecar = container(
        "sh",
        "-c",
        "trap 'exit 0' TERM; while true; do sleep 0.1; done",
        name="side",
        restartPolicy="Always",
    )
    node.start(shell("accompanied", node.name, "sleep 1", initContainers=[sidecar]))
    pod = node.ended("accompanied")
    assert pod["status"]["phase"] == "Succeeded"
    side, main = pod["status"]["initContainerStatuses"][0], state(pod)
    assert side["state"]["terminated"]["finishedAt"] >= main["finishedAt"]


def test_item_130_sigkill_after_the_grace(node: Node) -> None:
    node.script(
        "stubborn",
        "trap '' TERM; echo up; while true; do sleep 0.1; done",
        terminationGracePeriodSeconds=2,
    )
    node.running("stubborn")
    eventually(lambda: "up" in node.log("stubborn"))
    version = node.api.get(node.ns.path("pods")).version
    with node.api.watch(
        node.ns.path("pods"), resourceVersion=version, fieldSelector="metadata.name=stubborn"
    ) as watch:
        began = time.monotonic()
        node.api.delete(node.ns.path("pods", "stubborn"))
        events = watch.until(lambda event: event["type"] == "DELETED")
        taken = time.monotonic() - began
    assert 1.8 < taken < 25, "its own grace, and not the 30 s of others"
    last = [event for event in events if event["type"] == "MODIFIED"][-1]["object"]
    assert (last["status"]["phase"], state(last)["exitCode"]) == ("Failed", 137)


def test_item_131_hooks(node: Node) -> None:
    hooked = container(
        "sh",
        "-c",
        "trap 'exit 0' TERM; echo up; while true; do sleep 0.05; done",
        lifecycle={"preStop": {"exec": {"command": ["sleep", "2"]}}},
    )
    node.start(run("hooked", node.name, containers=[hooked], terminationGracePeriodSeconds=1000))
    broken = container(
        "sleep", "30", lifecycle={"postStart": {"exec": {"command": ["sh", "-c", "exit 1"]}}}
    )
    node.start(
        run(
            "broken",
            node.name,
            containers=[broken],
            restartPolicy="Always",
            terminationGracePeriodSeconds=1,
        )
    )
    node.running("hooked")
    eventually(lambda: "up" in node.log("hooked"))
    began = time.monotonic()
    node.api.delete(node.ns.path("pods", "hooked"))
    node.api.gone(node.ns.path("pods", "hooked"))
    assert time.monotonic() - began > 1.8
    node.api.wait(node.ns.path("pods", "broken"), lambda pod: restarts(pod) >= 1)


def test_item_132_probes(node: Node) -> None:
    def probe(*command: str, **more: Any) -> Tree:
        return {
            "exec": {"command": list(command)},
            "periodSeconds": 1,
            "failureThreshold": 1,
            **more,
        }

    unready = container("sleep", "60", readinessProbe=probe("false"))
    node.start(run("unready", node.name, containers=[unready]))
    dying = container("sleep", "60", livenessProbe=probe("false"), startupProbe=probe("true"))
    node.start(
        run(
            "dying",
            node.name,
            containers=[dying],
            restartPolicy="Always",
            terminationGracePeriodSeconds=1,
        )
    )
    slow = container("sleep", "60", startupProbe=probe("false", failureThreshold=60))
    node.start(run("starting", node.name, containers=[slow]))
    pod = node.running("unready")
    ready = objects.condition(pod, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ContainersNotReady")
    node.running("starting")
    assert (
        node.api.get(node.ns.path("pods", "starting")).tree["status"]["containerStatuses"][0][
            "started"
        ]
        is False
    )
    node.api.wait(node.ns.path("pods", "dying"), lambda pod: restarts(pod) >= 1)


def test_item_133_environment(node: Node) -> None:
    node.api.create(
        node.ns.path("configmaps"),
        objects.config_map("env", {"FROM_MAP": "mapped", "key": "valued"}),
    )
    env = [
        {"name": "BASE", "value": "b"},
        {"name": "BUILT", "value": "$(BASE)-$(NONE)-$$(BASE)"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        {
            "name": "CPU",
            "valueFrom": {"resourceFieldRef": {"resource": "requests.cpu", "divisor": "1m"}},
        },
        {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "env", "key": "key"}}},
    ]
    expanded = container(
        "sh",
        "-c",
        'echo "$BUILT|$POD|$LABEL|$CPU|$KEY|$FROM_MAP|$0"; env',
        "$(BASE)",
        env=env,
        envFrom=[{"configMapRef": {"name": "env"}}],
        resources={"requests": {"cpu": "250m"}},
    )
    node.start(run("environed", node.name, containers=[expanded]))
    missing = container(
        "sh",
        "-c",
        "echo $LATE",
        env=[{"name": "LATE", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "k"}}}],
    )
    node.start(run("waiting", node.name, containers=[missing]))
    node.ended("environed")
    lines = node.log("environed").splitlines()
    assert lines[0] == "b-$(NONE)-$(BASE)|environed|environed|250|valued|mapped|b"
    assert {"HOSTNAME=environed"} <= set(lines) and any(
        line.startswith("KUBERNETES_SERVICE_HOST=") for line in lines
    )

    def waits(pod: Tree) -> bool:
        waiting = (
            (pod["status"].get("containerStatuses") or [{}])[0].get("state", {}).get("waiting", {})
        )
        return bool(waiting.get("reason") == "CreateContainerConfigError")

    node.api.wait(node.ns.path("pods", "waiting"), waits)
    node.api.create(node.ns.path("configmaps"), objects.config_map("late", {"k": "came"}))
    node.ended("waiting")
    assert node.log("waiting") == "came\n"


def test_item_134_volumes_of_configuration(node: Node) -> None:
    node.api.create(
        node.ns.path("configmaps"), objects.config_map("files", {"a": "one", "b": "two"})
    )
    node.api.create(
        node.ns.path("secrets"), {"metadata": {"name": "hidden"}, "stringData": {"s": "secret"}}
    )
    volumes = [
        {"name": "all", "configMap": {"name": "files"}},
        {
            "name": "some",
            "configMap": {"name": "files", "items": [{"key": "a", "path": "x/y", "mode": 0o400}]},
        },
        {"name": "sec", "secret": {"secretName": "hidden", "defaultMode": 0o440}},
    ]
    mounts = [
        {"name": name, "mountPath": f"/etc/hekla-test/{name}"} for name in ("all", "some", "sec")
    ]
    mounts.append({"name": "all", "mountPath": "/etc/hekla-test/sub", "subPath": "a"})
    script = (
        "cd /etc/hekla-test; cat all/a all/b some/x/y sec/s; echo; stat -Lc %a some/x/y sec/s; ls some; "
        "while [ $(cat all/a) = one ]; do sleep 0.1; done; cat all/a sub; echo; readlink all/a"
    )
    node.start(
        run(
            "mounted",
            node.name,
            containers=[container("sh", "-c", script, volumeMounts=mounts)],
            volumes=volumes,
        )
    )
    eventually(lambda: node.api.get(node.ns.path("pods", "mounted", "log")).text.count("\n") >= 4)
    node.api.patch(node.ns.path("configmaps", "files"), {"data": {"a": "new"}})
    node.ended("mounted")
    assert node.log("mounted").splitlines() == [
        "onetwoonesecret",
        "400",
        "440",
        "x",
        "newone",
        "..data/a",
    ]


def test_item_135_the_token_of_the_account(node: Node) -> None:
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    lines = node.said(
        "tokened", f"cat {place}/token; echo; cat {place}/namespace; echo; head -1 {place}/ca.crt"
    )
    assert lines[1:] == [node.ns.name, "-----BEGIN CERTIFICATE-----"]
    account = Api(node.api.kubeconfig, token=lines[0])
    review = account.post(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews", {"kind": "SelfSubjectReview"}
    )
    assert review.status == 201, review
    assert (
        review.tree["status"]["userInfo"]["username"]
        == f"system:serviceaccount:{node.ns.name}:default"
    )


def test_item_136_shared_and_host_directories(node: Node, tmp_path: Any) -> None:
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/hekla-share"}]}
    writer = container("sh", "-c", "echo hello > /hekla-share/f", name="writer", **mount)
    reader = container(
        "sh",
        "-c",
        "while [ ! -s /hekla-share/f ]; do sleep 0.05; done; cat /hekla-share/f",
        name="reader",
        **mount,
    )
    node.start(
        run(
            "sharing",
            node.name,
            containers=[writer, reader],
            volumes=[{"name": "v", "emptyDir": {}}],
        )
    )
    node.ended("sharing")
    assert node.log("sharing", container="reader") == "hello\n"
    wrong = {"name": "h", "hostPath": {"path": "/no/such/place", "type": "Directory"}}
    mounts = [{"name": "h", "mountPath": "/hekla-host"}]
    node.start(
        run(
            "unmounted",
            node.name,
            containers=[container("true", volumeMounts=mounts)],
            volumes=[wrong],
        )
    )
    eventually(
        lambda: [
            event
            for event in node.api.get(
                node.ns.path("events"), fieldSelector="involvedObject.name=unmounted"
            ).tree["items"]
            if event["reason"] == "FailedMount"
        ]
    )
    assert node.api.get(node.ns.path("pods", "unmounted")).tree["status"]["phase"] == "Pending"


def test_item_137_names_of_pods(node: Node) -> None:
    node.api.create(
        node.ns.path("services"),
        {
            "metadata": {"name": "crowd"},
            "spec": {
                "clusterIP": "None",
                "selector": {"crowd": "1"},
                "publishNotReadyAddresses": True,
            },
        },
    )
    one = shell("member", node.name, "sleep 30", hostname="member", subdomain="crowd")
    one["metadata"]["labels"]["crowd"] = "1"
    node.start(one)
    ip = node.running("member")["status"]["podIP"]
    look = "hostname; grep $(hostname) /etc/hosts; for i in $(seq 50); do getent hosts member.crowd && break; sleep 0.2; done"
    other = shell("seeker", node.name, look, hostname="seeker", subdomain="crowd")
    other["metadata"]["labels"]["crowd"] = "1"
    node.start(other)
    pod = node.ended("seeker")
    lines = node.log("seeker").splitlines()
    assert lines[0] == "seeker"
    assert lines[1].split()[0] == pod["status"]["podIP"] and "seeker" in lines[1].split()
    assert lines[-1].split()[0] == ip


def test_item_138_logs(node: Node, kubectl: Kubectl) -> None:
    node.script("talking", "for i in 1 2 3; do echo line $i; done; sleep 2; echo line 4")
    two = [container("sh", "-c", f"echo {name}", name=name) for name in ("first", "second")]
    node.start(run("pair", node.name, containers=two))
    node.start(
        shell("crashed", node.name, "echo once; sleep 0.2; exit 1", restartPolicy="OnFailure")
    )

    def logs(*arguments: str) -> str:
        return kubectl("-n", node.ns.name, "logs", *arguments)

    node.api.wait(node.ns.path("pods", "talking"), lambda pod: pod["status"]["phase"] != "Pending")
    assert logs("-f", "talking").splitlines() == [f"line {number}" for number in (1, 2, 3, 4)]
    assert logs("--tail=1", "talking") == "line 4\n"
    assert logs("--since=1h", "--tail=2", "talking") == "line 3\nline 4\n"
    stamped = logs("--timestamps", "talking").splitlines()[0].split(" ", 1)
    assert stamped[0].endswith("Z") and "T" in stamped[0] and stamped[1] == "line 1"
    node.ended("pair")
    assert logs("-c", "second", "pair") == "second\n"
    refused = node.api.get(node.ns.path("pods", "pair", "log"))
    assert refused.status == 400 and "choose one of: [first second]" in refused.message
    node.api.wait(node.ns.path("pods", "crashed"), lambda pod: restarts(pod) >= 1)
    assert logs("-p", "crashed") == "once\n"
    stuck = [container("sh", "-c", "sleep 30", name="before")]
    node.start(shell("unborn", node.name, "true", initContainers=stuck))
    node.api.wait(
        node.ns.path("pods", "unborn"), lambda pod: pod["status"].get("containerStatuses")
    )
    waiting = node.api.get(node.ns.path("pods", "unborn", "log"), container="c")
    assert (
        waiting.status == 400
        and 'container "c" in pod "unborn" is waiting to start: PodInitializing' in waiting.message
    )


def test_item_139_exec(node: Node, kubectl: Kubectl) -> None:
    node.script("entered", "sleep 30")
    node.running("entered")
    done = kubectl.run("-n", node.ns.name, "exec", "entered", "--", "sh", "-c", "echo in; exit 3")
    assert (done.returncode, done.stdout) == (3, "in\n"), done.stderr
    assert (
        kubectl("-n", node.ns.name, "exec", "-i", "entered", "--", "cat", stdin="typed") == "typed"
    )


def test_item_140_copies_and_ports(node: Node, kubectl: Kubectl, tmp_path: Any) -> None:
    node.script("copied", "sleep 30")
    node.running("copied")
    (tmp_path / "in").write_text("carried")
    kubectl("-n", node.ns.name, "cp", str(tmp_path / "in"), f"copied:{tmp_path}/there")
    kubectl("-n", node.ns.name, "cp", f"copied:{tmp_path}/there", str(tmp_path / "out"))
    assert (tmp_path / "out").read_text() == "carried"


def test_item_141_the_node_object(api: Api, real_node: str) -> None:
    path = f"/api/v1/nodes/{real_node}"
    node = api.get(path).tree
    assert objects.condition(node, "Ready")["status"] == "True"
    for pressure in ("MemoryPressure", "DiskPressure", "PIDPressure"):
        assert objects.condition(node, pressure)["status"] == "False"
    lease = api.get(
        f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{real_node}"
    ).tree
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == (
        real_node,
        40,
    )
    assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    gpus = [{"op": "add", "path": "/status/capacity/example.com~1gpu", "value": "4"}]
    assert api.patch(f"{path}/status", gpus, JSON_PATCH).status == 200
    first = lease["spec"]["renewTime"]
    renewed = api.wait(
        f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{real_node}",
        lambda tree: tree["spec"]["renewTime"] != first,
    )
    assert renewed["spec"]["renewTime"] > first
    status = api.get(path).tree["status"]
    assert (
        status["capacity"]["example.com/gpu"],
        status["allocatable"].get("example.com/gpu"),
    ) in (("4", "4"), ("4", None))
    api.patch(
        f"{path}/status",
        [{"op": "remove", "path": "/status/capacity/example.com~1gpu"}],
        JSON_PATCH,
    )


def test_item_142_a_pod_that_is_too_large(node: Node) -> None:
    huge = container("true", resources={"requests": {"cpu": "100000"}})
    node.start(run("huge", node.name, containers=[huge]))
    status = node.ended("huge")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    assert status["message"].startswith(
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 100000000"
    )
    assert "containerStatuses" not in status


def test_item_143_a_deadline(node: Node) -> None:
    began = time.monotonic()
    node.script("late", "sleep 1000", activeDeadlineSeconds=1)
    status = node.ended("late")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert status["message"] == "Pod was active on the node longer than the specified deadline"
    assert time.monotonic() - began >= 1


def test_item_144_a_restart_of_the_agent(node: Node, own: bool) -> None:
    if not own:
        pytest.skip("the kubelet of a cluster that is not ours is not ours to kill")
    import os
    import signal

    from hekla.local.cluster.cluster import Cluster
    from tests.chaos.killing import pid_of

    cluster = Cluster(node.api.kubeconfig.parent)

    def kubelet() -> int:
        return pid_of(cluster, "kubelet", ready=True)

    node.script("surviving", "echo before; sleep 3; echo after")
    begun = node.api.wait(
        node.ns.path("pods", "surviving"), lambda pod: pod["status"]["phase"] != "Pending"
    )
    before = begun["status"]["containerStatuses"][0]
    killed = kubelet()
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: kubelet() not in (0, killed))
    pod = node.ended("surviving")
    after = pod["status"]["containerStatuses"][0]
    assert (after["restartCount"], after["containerID"], state(pod)["exitCode"]) == (
        0,
        before["containerID"],
        0,
    )
    assert node.log("surviving") == "before\nafter\n"
