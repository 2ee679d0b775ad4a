"""Endpoints and slices of services on a real API server: what removes them, what brings them back,
what mirrors them."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api.kubernetes import core
from hekla.api.kubernetes.discovery import ENDPOINT_SLICE
from hekla.kube.client import Client
from tests.controller_manager.live import cluster, eventually, is_gone, pod, report

SLICES, ENDPOINTS = ENDPOINT_SLICE.untyped, core.ENDPOINTS.untyped


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("services")) as started:
        yield started


async def slices(client: Client, namespace: str, name: str = "web") -> list[dict[str, Any]]:
    return (await client.list(SLICES, namespace, labels=f"kubernetes.io/service-name={name}")).items


async def addresses(client: Client, namespace: str, wanted: list[str]) -> list[dict[str, Any]]:
    async def look() -> Any:
        found = await slices(client, namespace)
        there = sorted(
            endpoint["addresses"][0] for piece in found for endpoint in piece.get("endpoints") or ()
        )
        return found if there == wanted and found else None

    found: list[dict[str, Any]] = await eventually(look)
    return found


async def make_service(client: Client, namespace: str, **spec: Any) -> None:
    body = {
        "metadata": {"name": "web"},
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": 8080}], **spec},
    }
    await client.create(core.SERVICE.untyped, body, namespace)


async def test_what_somebody_removes_is_written_again_until_the_service_goes(client, namespace):
    await client.create(core.POD.untyped, pod("a", labels={"app": "web"}, nodeName="n"), namespace)
    await report(client, namespace, "a", ip="10.3.0.1")
    await make_service(client, namespace, selector={"app": "web"}, clusterIP="None")
    (piece,) = await addresses(client, namespace, ["10.3.0.1"])
    assert "service.kubernetes.io/headless" in piece["metadata"]["labels"]

    await client.delete(SLICES, piece["metadata"]["name"], namespace)
    await client.delete(ENDPOINTS, "web", namespace)

    (again,) = await addresses(client, namespace, ["10.3.0.1"])
    assert again["metadata"]["uid"] != piece["metadata"]["uid"]
    await eventually(lambda: client.get(ENDPOINTS, "web", namespace))

    await client.delete(core.SERVICE, "web", namespace)
    await eventually(lambda: is_gone(client, ENDPOINTS, "web", namespace))

    async def no_slices() -> bool:
        return not await slices(client, namespace)

    await eventually(no_slices)


async def test_a_service_without_pods_has_an_empty_slice(client, namespace):
    await make_service(client, namespace, selector={"app": "nobody"})

    (piece,) = await addresses(client, namespace, [])

    assert (
        piece["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"]
        == "endpointslice-controller.k8s.io"
    )


async def test_endpoints_of_a_user_have_a_mirror(client, namespace):
    await make_service(client, namespace)
    subset = {"addresses": [{"ip": "10.4.0.1"}], "ports": [{"name": "http", "port": 9000}]}
    await client.create(ENDPOINTS, {"metadata": {"name": "web"}, "subsets": [subset]}, namespace)
    (piece,) = await addresses(client, namespace, ["10.4.0.1"])
    assert (
        piece["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"]
        == "endpointslicemirroring-controller.k8s.io"
    )
    assert piece["ports"] == [{"name": "http", "port": 9000, "protocol": "TCP"}]

    await client.patch(
        ENDPOINTS, "web", {"subsets": [{**subset, "addresses": [{"ip": "10.4.0.2"}]}]}, namespace
    )
    await addresses(client, namespace, ["10.4.0.2"])

    await client.delete(ENDPOINTS, "web", namespace)

    async def no_slices() -> bool:
        return not await slices(client, namespace)

    await eventually(no_slices)
