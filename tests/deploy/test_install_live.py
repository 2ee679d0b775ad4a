"""`helm install` on a cluster that has nothing but Kubernetes' parts: every daemon is a pod with
the account that the chart gives it."""

from __future__ import annotations

import json
import shlex
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.apiserver_process import ApiServerProcess
from tests.cluster.api import Api, Tree
from tests.deploy.accounts import AUDIT, refused
from tests.deploy.chart import AGENT_ALONE, CHART, NAMESPACE, Chart, Helm
from tests.deploy.waiting import until
from tests.kubernetes import programs
from tests.kubernetes.processes import Processes
from tests.ports import free_port

pytestmark = programs.slow(90)

PAGE = (Path(__file__).parents[2] / "docs" / "on-your-cluster.md").read_text()
INSTALL = shlex.split(PAGE.partition("\nhelm install ")[2].partition("\n")[0])
"""What the page says, after `helm install`."""
BATCH, FLOW = "batch.volcano.sh/v1alpha1", "flow.volcano.sh/v1alpha1"
JOBS = f"/apis/{BATCH}/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
HYPER_NODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
LABELS = {
    "networkTopologyDiscovery": [
        {
            "source": "label",
            "enabled": True,
            "config": {
                "networkTopologyTypes": {
                    "rack": [
                        {"nodeLabel": "example.com/rack"},
                        {"nodeLabel": "kubernetes.io/hostname"},
                    ]
                }
            },
        }
    ]
}


class Site:
    """The cluster, and helm for it."""

    def __init__(self, server: ApiServerProcess, helm: Helm, values: Path, audit_log: Path) -> None:
        self.api = Api(server.kubeconfig)
        self.helm = helm
        self.values = values
        self.audit_log = audit_log

    def release(self, verb: str, *words: str) -> None:
        """helm carries out a change of the release; else the failure has what became of it."""
        done = self.helm.run(verb, "volcano", *words)
        assert done.returncode == 0, "\n".join([done.stderr, *self.state(), self.logs()])

    def state(self) -> list[str]:
        """Deployments, ReplicaSets and pods of the release with their status, and the events."""
        within = f"namespaces/{NAMESPACE}"
        found = []
        for path in (
            f"apis/apps/v1/{within}/deployments",
            f"apis/apps/v1/{within}/replicasets",
            f"api/v1/{within}/pods",
        ):
            for item in self.api.get(f"/{path}").tree["items"]:
                meta = item["metadata"]
                found.append(f"{meta['name']} ({meta['creationTimestamp']}): {item['status']}")
        events = self.api.get(f"/api/v1/{within}/events").tree["items"]
        found.extend(
            f"{one['lastTimestamp']} {one['involvedObject']['name']} {one['reason']}: {one['message']}"
            for one in events
        )
        return found

    def ready(self) -> dict[str, int]:
        """Ready copies of each Deployment."""
        items = self.api.get(DEPLOYMENTS).tree["items"]
        return {item["metadata"]["name"]: item["status"].get("readyReplicas", 0) for item in items}

    def ready_are(self, copies: dict[str, int]) -> None:
        """So many copies are ready.  helm waits for ReplicaSets, whose counts those of the
        Deployments follow a moment later."""
        until(lambda: self.ready() == copies, self.ready)

    def queue_is_open(self, name: str) -> None:
        path = f"/apis/scheduling.volcano.sh/v1beta1/queues/{name}"
        until(
            lambda: self.api.get(path).tree.get("status", {}).get("state") == "Open",
            lambda: self.api.get(path),
        )

    def finished(self, path: str) -> Tree:
        """The job at a path, completed."""

        def completed() -> Tree | None:
            job = self.api.get(path)
            done = (
                job.status == 200
                and job.tree.get("status", {}).get("state", {}).get("phase") == "Completed"
            )
            return job.tree if done else None

        found: Tree = until(completed, lambda: (self.api.get(path), self.logs()))
        return found

    def succeeds(self, path: str) -> None:
        """The pod at a path comes to a good end."""
        until(
            lambda: self.api.get(path).tree["status"].get("phase") == "Succeeded",
            lambda: (self.api.get(path), self.logs()),
        )

    def hypernodes_have(self, counts: list[int]) -> None:
        """There come to be as many hypernodes, of so many nodes each."""

        def counted() -> bool:
            return [
                one.get("status", {}).get("nodeCount")
                for one in self.api.get(HYPER_NODES).tree["items"]
            ] == counts

        until(counted, lambda: (self.api.get(HYPER_NODES), self.logs()))

    def descheduler(self) -> str:
        """The pod that is it."""
        pods = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods", labelSelector="app=descheduler")
        (name,) = (
            pod["metadata"]["name"]
            for pod in pods.tree["items"]
            if "deletionTimestamp" not in pod["metadata"]
        )
        return str(name)

    def descheduler_reads(self, pod: str, profile: str) -> None:
        """This pod says that it follows a profile and has no measurements for it."""
        path = f"/api/v1/namespaces/{NAMESPACE}/events"
        until(
            lambda: any(
                event["involvedObject"]["name"] == pod and f"profile {profile} " in event["message"]
                for event in self.api.get(path).tree["items"]
                if event["reason"] == "NoFreshUsage"
            ),
            lambda: (self.api.get(path), self.logs()),
        )

    def logs(self) -> str:
        """The end of what the daemons say."""
        pods = self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods").tree["items"]
        names = [pod["metadata"]["name"] for pod in pods]
        return "\n".join(
            self.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/log", tailLines="20").text
            for name in names
        )


@pytest.fixture(scope="module")
def site(
    helm_program: Path, ports_of_their_own: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("site")
    images, values, policy, audit_log = (
        place / name for name in ("images.yaml", "values.yaml", "audit.json", "audit.log")
    )
    images.write_text(
        yaml.safe_dump([{"image": "*/hekla", "path": [str(Path(sys.executable).parent)]}])
    )
    policy.write_text(json.dumps(AUDIT))
    # User 1000 of this machine need not be able to read where Hekla lies.
    values.write_text(
        yaml.safe_dump(
            {"custom": {"default_csc": None, "controller_config_override": yaml.safe_dump(LABELS)}}
        )
    )
    processes = Processes(place)
    with ApiServerProcess.started(
        place / "server", f"--audit-policy-file={policy}", f"--audit-log-path={audit_log}"
    ) as server:
        own, pki = f"--kubeconfig={server.internal_kubeconfig}", server.pki
        try:
            for name, *flags in (
                (
                    "kube-controllers",
                    f"--root-ca-file={pki / 'ca.crt'}",
                    f"--storage-dir={place / 'volumes'}",
                ),
                (
                    "kubelet",
                    f"--root-dir={place / 'pods'}",
                    "--nodes=1",
                    f"--images={images}",
                    "--stop-pods-on-exit",
                    f"--api-server-address=127.0.0.1:{server.port}",
                    f"--tls-cert-file={pki / 'kubelet.crt'}",
                    f"--tls-private-key-file={pki / 'kubelet.key'}",
                    f"--client-ca-file={pki / 'ca.crt'}",
                ),
                # What a cluster has anyway: somebody who places plain pods.
                ("agent-scheduler", "--scheduler-name=default-scheduler", "--leader-elect=false"),
            ):
                processes.start(name, [sys.executable, "-m", "hekla", name, own, *flags])
            yield Site(server, Helm(helm_program, place, server.kubeconfig), values, audit_log)
        finally:
            processes.stop()


def test_a_release_from_its_installation_to_its_end(site: Site) -> None:
    parts = [
        "--set=custom.hypernode_controller_mode=standalone",
        "--set=custom.agent_scheduler_enable=true",
        "--set=custom.descheduler_enable=true",
        "--set=custom.descheduler_interval=1s",
    ]
    release, chart, *words = INSTALL
    assert (release, chart, NAMESPACE in words, "--wait" in words) == (
        "volcano",
        "deploy/chart",
        True,
        True,
    )
    common = [str(CHART), *words, "--timeout=120s", f"--values={site.values}", *parts]
    site.release("install", *common)
    common.remove("--create-namespace")
    names = (
        "admission",
        "agent-scheduler",
        "controllers",
        "descheduler",
        "hypernode-controller",
        "scheduler",
    )
    site.ready_are({f"volcano-{name}": 1 for name in names})
    for queue in ("root", "default"):
        site.queue_is_open(queue)
    what_users_do(site, "first")

    # Several copies of everything, which takes the way from Recreate to a rolling update.
    more = [
        "leader_elect_enable=true",
        *(f"{name}_replicas=2" for name in ("scheduler", "controller", "admission", "descheduler")),
    ]
    site.release("upgrade", *common, *(f"--set=custom.{value}" for value in more))
    site.ready_are(
        {f"volcano-{name}": copies for name, copies in zip(names, (2, 1, 2, 2, 1, 2), strict=True)}
    )
    what_users_do(site, "second")
    assert refused(site.audit_log) == [], "rights that the accounts lack"

    site.release("upgrade", *common)
    site.ready_are({f"volcano-{name}": 1 for name in names})

    # A new policy is read by the pod that is there.  No metrics server is, which the pod says with
    # the profile's name.
    pod = site.descheduler()
    site.descheduler_reads(pod, "default")
    other = site.values.with_name("policy.yaml")
    policy = (CHART / "config" / "volcano-descheduler.conf").read_text()
    other.write_text(policy.replace("- name: default\n", "- name: changed\n"))
    site.release("upgrade", *common, f"--set-file=custom.descheduler_config_override={other}")
    site.descheduler_reads(pod, "changed")

    site.release("uninstall", "--wait", "--timeout=120s")
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        assert site.api.get(f"{HOOKS}/{kind}").tree["items"] == [], (
            "or nobody could make a job any more"
        )
    assert site.api.get(f"{JOBS}/first-job").status == 200, (
        "definitions, and what is of their kinds, stay"
    )


def what_users_do(site: Site, name: str) -> None:
    """A little of everything, so that every daemon does what it is there for."""
    api = site.api
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", "sleep 0.2"]}
    task = {
        "name": "t",
        "replicas": 2,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    spec = {"minAvailable": 2, "schedulerName": "volcano", "tasks": [task]}

    def create(version: str, kind: str, suffix: str, spec: Tree) -> Tree:
        tree = {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": f"{name}-{suffix}"},
            "spec": spec,
        }
        return api.create(f"/apis/{version}/namespaces/default/{kind.lower()}s", tree)

    bad = api.post(
        JOBS,
        {
            "apiVersion": BATCH,
            "kind": "Job",
            "metadata": {"name": "bad"},
            "spec": {**spec, "minAvailable": 5},
        },
    )
    assert bad.status == 400 and "admission webhook" in bad.message, bad
    plugins: Tree = {"plugins": {"svc": [], "ssh": [], "env": []}}
    made = create(BATCH, "Job", "job", {**spec, **plugins})
    assert made["spec"]["queue"] == "default", "admission has filled it in"
    site.finished(f"{JOBS}/{name}-job")

    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    volumes = [{"mountPath": "/kept", "volumeClaim": claim}]
    create(BATCH, "Job", "short", {**spec, "ttlSecondsAfterFinished": 0, "volumes": volumes})
    until(
        lambda: api.get(f"{JOBS}/{name}-short").status == 404,
        lambda: (api.get(f"{JOBS}/{name}-short"), site.logs()),
    )

    create(FLOW, "JobTemplate", "template", spec)
    create(
        FLOW,
        "JobFlow",
        "flow",
        {"flows": [{"name": f"{name}-template"}], "jobRetainPolicy": "retain"},
    )
    site.finished(f"{JOBS}/{name}-flow-{name}-template")

    for scheduler in ("volcano", "agent-scheduler"):
        pod = {
            "metadata": {"name": f"{name}-{scheduler}"},
            "spec": {
                "schedulerName": scheduler,
                "restartPolicy": "Never",
                "containers": [container],
            },
        }
        api.create(PODS, pod)
    for scheduler in ("volcano", "agent-scheduler"):
        site.succeeds(f"{PODS}/{name}-{scheduler}")

    node = api.get("/api/v1/nodes").tree["items"][0]["metadata"]["name"]
    for rack, count in ((name, 1), (None, 0)):
        assert (
            api.patch(
                f"/api/v1/nodes/{node}", {"metadata": {"labels": {"example.com/rack": rack}}}
            ).status
            == 200
        )
        site.hypernodes_have([1] * count)


def test_an_agent_works_in_a_pod_of_the_chart(site: Site, chart: Chart, tmp_path: Path) -> None:
    """With the chart's mounts, user and capabilities; only what would be the node's own directories
    and port is this test's."""
    api, port = site.api, free_port()
    api.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})  # it may be there
    rendered = chart(
        "basic.image_registry=registry.example.com/team", *AGENT_ALONE, "agent_supported_features=*"
    )
    for tree in rendered.trees:
        if tree["metadata"]["name"].startswith("volcano-agent"):
            if tree["kind"] == "DaemonSet":
                settle(tree["spec"]["template"]["spec"], tmp_path, port)
            create_or_leave(api, tree)
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"

    def running() -> str:
        for pod in api.get(pods, labelSelector="name=volcano-agent").tree["items"]:
            if pod["status"].get("phase") == "Running":
                return str(pod["metadata"]["name"])
        return ""

    name = until(running, site.state)

    def told() -> bool:
        events = api.get(f"/api/v1/namespaces/{NAMESPACE}/events").tree["items"]
        return (name, "ConfigApplySuccess") in {
            (one["involvedObject"]["name"], one["reason"]) for one in events
        }

    until(told, site.logs)
    skipped = api.get(f"{pods}/{name}/log", container="volcano-agent-init").text
    assert "skip vm/memcg_qos_enable" in skipped or Path("/proc/sys/vm/memcg_qos_enable").exists()
    (node,) = api.get("/api/v1/nodes").tree["items"]
    assert "ColocationReady" in {one["type"] for one in node["status"]["conditions"]}
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert b"hekla_agent_configuration_applied 1.0" in answer.read()
    assert refused(site.audit_log, "volcano-agent") == [], "rights that the account lacks"
    api.delete(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/volcano-agent")
    until(lambda: not running(), site.state)


def settle(pod: Tree, place: Path, port: int) -> None:
    """Directories that a node would have anyway, or gets, are in a directory of the test's."""
    for volume in pod["volumes"]:
        if volume["name"] in ("state", "kubelet", "cni", "cni-plugins"):
            (place / volume["name"]).mkdir()
            volume["hostPath"]["path"] = str(place / volume["name"])
    pod["containers"][0]["args"].append(f"--healthz-port={port}")


def create_or_leave(api: Api, tree: Tree) -> None:
    version, namespace = tree["apiVersion"], tree["metadata"].get("namespace")
    base = "/api/v1" if version == "v1" else f"/apis/{version}"
    within = f"/namespaces/{namespace}" if namespace else ""
    answer = api.post(f"{base}{within}/{tree['kind'].lower()}s", tree)
    assert answer.status in (201, 409), answer
