"""A service with very many ports harms itself at most; and fake nodes pull images as others do."""

from __future__ import annotations

import msgspec

from hekla.api.kubernetes import core
from hekla.local.apiserver.objects import builtin
from hekla.local.apiserver.objects.validation.services import MAX_SERVICE_PORTS
from hekla.local.kubelet.environment import MOST_SERVICE_BYTES, service_variables, size_of
from hekla.local.kubelet.network.names import Zone
from hekla.local.kubelet.network.relay import TargetOrder
from hekla.local.kubelet.network.service_proxy import (
    MAX_LISTENERS,
    ServiceProxy,
    max_listeners,
)
from hekla.local.kubelet.nodes.fake_statuses import NEVER, is_refused

SERVICE = next(kind for kind in builtin.kinds() if kind.kind == "Service")


def service(name: str, ports: int) -> core.Service:
    numbers = [{"name": f"p{number}", "port": 1 + number} for number in range(ports)]
    return core.SERVICE.convert(
        {"metadata": {"name": name}, "spec": {"clusterIP": "10.96.0.9", "ports": numbers}}
    )


def test_variables_of_services_leave_room_for_a_process() -> None:
    many = [
        service("huge", 20_000),
        service("shop", 2),
        *(service(f"wide-{number}", 900) for number in range(30)),
    ]
    found = service_variables(many)
    assert size_of(found) <= MOST_SERVICE_BYTES
    assert found["SHOP_SERVICE_HOST"] == "10.96.0.9" and found["SHOP_PORT_2_TCP_PORT"] == "2"
    assert found["HUGE_SERVICE_PORT"] == "1" and "HUGE_PORT_20000_TCP" not in found
    assert service_variables([service("shop", 2)]) == {
        key: text for key, text in found.items() if key.startswith("SHOP_")
    }


def test_a_service_has_at_most_a_thousand_ports() -> None:
    def tree(count: int) -> dict[str, object]:
        ports = [
            {"name": f"p{number}", "port": 1 + number, "protocol": "TCP", "targetPort": 80}
            for number in range(count)
        ]
        made = {
            "metadata": {"name": "s"},
            "spec": {"ports": ports, "clusterIP": "None", "clusterIPs": ["None"]},
        }
        SERVICE.strategy.default(made)
        return made

    assert SERVICE.strategy.validate_create(tree(MAX_SERVICE_PORTS)) == []
    for count in (MAX_SERVICE_PORTS + 1, 20_000):
        texts = [str(error) for error in SERVICE.strategy.validate_create(tree(count))]
        assert texts == [
            f"spec.ports: Too many: {count}: must have at most {MAX_SERVICE_PORTS} items"
        ]
    large = tree(5000)
    # Of before there was a bound.
    assert SERVICE.strategy.validate_update(msgspec.to_builtins(large), large) == []


def test_listeners_leave_files_for_pods() -> None:
    assert 0 < max_listeners() <= MAX_LISTENERS


class ProxyWithoutSockets(ServiceProxy):
    """A proxy whose listeners hold no files; it has room for eight."""

    def __init__(self) -> None:
        self.zone = Zone()
        self.max_listeners = 8
        self.listeners = {}
        self.of_namespace = {}

    async def _serve(self, key: tuple[str, str, int], choice: TargetOrder) -> bool:
        self.listeners[key] = choice, lambda: None
        return True

    async def open(self, namespace: str, number: int, ports: int) -> int:
        """How many ports of a service with so many are served."""
        wide = [
            {"name": str(port), "protocol": "TCP", "port": port, "targets": [["10.244.0.9", "80"]]}
            for port in range(1, ports + 1)
        ]
        address = f"10.96.0.{number}"
        await self.replace(namespace, [{"name": "wide", "address": address, "ports": wide}], [])
        return len(self.of_namespace[namespace])


async def test_one_namespace_leaves_listeners_to_the_others() -> None:
    proxy = ProxyWithoutSockets()
    assert await proxy.open("greedy", 1, 1_000) == 2
    assert [await proxy.open(f"team-{one}", one, 3) for one in range(2, 6)] == [2, 2, 2, 0]
    assert len(proxy.listeners) == proxy.max_listeners
    assert await proxy.open("greedy", 1, 1) == 1
    assert await proxy.open("team-5", 5, 3) == 1, "what one gives up is for whoever lacks"


def test_fake_nodes_cannot_pull_what_no_registry_has() -> None:
    assert is_refused("foo:non-existent") and is_refused("example.com/a/b:nonexistent")
    assert (
        not is_refused("foo")
        and not is_refused("registry.k8s.io/pause:3.10")
        and not is_refused("::")
    )
    assert NEVER > 365 * 86400
