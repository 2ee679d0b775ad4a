"""Whether a node takes a pod."""

from __future__ import annotations

from hekla.api.kubernetes import core
from hekla.local.kubelet.pods.admit import refusal, requests


def pod(
    cpu: str = "", *, name: str = "p", inits: list[core.Container] | None = None, **spec: object
) -> core.Pod:
    wanted: dict[str, str | int | float] = {"cpu": cpu} if cpu else {}
    containers = [core.Container(name="c", resources=core.ResourceRequirements(requests=wanted))]
    return core.Pod(spec=core.PodSpec(containers=containers, init_containers=inits or [], **spec))  # type: ignore[arg-type]


def node(**labels: str) -> core.Node:
    made = core.Node(status=core.NodeStatus(allocatable={"cpu": "4", "memory": "4Gi", "pods": "3"}))
    made.metadata.name, made.metadata.labels = "n1", labels
    return made


def init(cpu: str, policy: str = "") -> core.Container:
    return core.Container(
        name="i", restart_policy=policy, resources=core.ResourceRequirements(requests={"cpu": cpu})
    )


def test_room() -> None:
    assert refusal(pod("2"), node(), [pod("2")]) is None
    assert refusal(pod("2"), node(), [pod("2500m")]) == (
        "OutOfcpu",
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: 2500, capacity: 4000",
    )
    refused = refusal(pod(), node(), [pod(), pod(), pod()])
    assert refused is not None and refused[0] == "OutOfpods"


def test_init_containers_count_by_the_largest_and_sidecars_beside_all() -> None:
    assert requests(pod("1", inits=[init("3"), init("2")]))["cpu"] == 3000
    assert requests(pod("1", inits=[init("500m", "Always"), init("2")]))["cpu"] == 2500
    assert requests(pod("3", inits=[init("500m", "Always"), init("2")]))["cpu"] == 3500


def test_selectors_and_affinity() -> None:
    assert refusal(pod(node_selector={"disk": "ssd"}), node(disk="ssd"), []) is None
    refused = refusal(pod(node_selector={"disk": "ssd"}), node(), [])
    assert refused is not None and refused[0] == "NodeAffinity"


def test_host_ports() -> None:
    def on(port: int) -> core.Pod:
        made = pod()
        made.spec.containers[0].ports = [core.ContainerPort(container_port=port, host_port=port)]
        return made

    assert refusal(on(80), node(), [on(81)]) is None
    refused = refusal(on(80), node(), [on(80)])
    assert refused is not None and refused[0] == "NodePorts"


def test_taints_that_evict() -> None:
    tainted = node()
    tainted.spec.taints = [core.Taint(key="k", effect="NoExecute")]
    refused = refusal(pod(), tainted, [])
    assert refused is not None and refused[0] == "TaintToleration"
    assert refusal(pod(tolerations=[core.Toleration(operator="Exists")]), tainted, []) is None
