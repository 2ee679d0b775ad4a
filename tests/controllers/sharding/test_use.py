"""How full a node is."""

import pytest

from hekla.controllers.sharding.use import (
    Container,
    Node,
    NodeMeta,
    NodeStatus,
    Pod,
    PodMarks,
    PodMeta,
    PodSpec,
    PodStatus,
    Resources,
    Use,
)


def pod(
    cpu: str = "0",
    memory: str = "0",
    *,
    node: str = "n",
    phase: str = "Running",
    mirror: str | None = None,
) -> Pod:
    return Pod(
        metadata=PodMeta(name="p", annotations=PodMarks(mirror=mirror)),
        spec=PodSpec(
            node_name=node,
            containers=[Container(resources=Resources(requests={"cpu": cpu, "memory": memory}))],
        ),
        status=PodStatus(phase=phase),
    )


def shares(*pods: Pod, cpu: str = "8", memory: str = "32Gi") -> tuple[float, float]:
    use = Use()
    for each in pods:
        use.changed(None, each)
    found = use.of(
        Node(
            metadata=NodeMeta(name="n"), status=NodeStatus(capacity={"cpu": cpu, "memory": memory})
        )
    )
    assert found.cpu is not None and found.memory is not None
    return round(found.cpu, 4), round(found.memory, 3)


@pytest.mark.scenario("controllers", 162)
def test_shares_of_capacity() -> None:
    assert shares(pod("20")) == (1.0, 0.0)
    assert shares(pod("1000m", "1Gi"), pod("2000m", "2Gi"), pod("500m", "512Mi")) == (0.4375, 0.109)
    assert shares(pod("1"), cpu="0") == (0.0, 0.0)


def test_what_takes_no_room() -> None:
    others = [
        pod("1", node=""),
        pod("1", phase="Succeeded"),
        pod("1", phase="Failed"),
        pod("1", mirror="x"),
        pod("1", node="other"),
    ]
    assert shares(*others) == (0.0, 0.0)


def test_pods_come_move_and_go() -> None:
    use, node = (
        Use(),
        Node(
            metadata=NodeMeta(name="n"), status=NodeStatus(capacity={"cpu": "4", "memory": "1Gi"})
        ),
    )
    use.changed(None, pod("1"))
    use.changed(pod("1"), pod("3"))
    assert use.of(node).cpu == 0.75
    use.changed(pod("3"), pod("3", phase="Succeeded"))
    assert use.of(node).cpu == 0.0
