"""What Endpoints and EndpointSlices say of a service's pods."""

from __future__ import annotations

import msgspec

from hekla.local.controller_manager.pods import Pod
from hekla.local.controller_manager.services.endpoints import (
    chosen,
    endpoints,
    groups_of,
    slice_body,
)
from hekla.local.controller_manager.services.mirroring import groups_of as mirrored
from hekla.local.controller_manager.services.slices import LARGEST, plan


def pod(
    name,
    ip="10.0.0.1",
    *,
    ready=True,
    phase="Running",
    labels=None,
    hostname="",
    subdomain="",
    ports=(),
):
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "labels": labels or {"app": "web"},
            },
            "spec": {
                "nodeName": "n1",
                "hostname": hostname,
                "subdomain": subdomain,
                "containers": [{"ports": list(ports)}],
            },
            "status": {
                "phase": phase,
                "podIP": ip,
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            },
        },
        Pod,
    )


def service(**spec):
    return {
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "protocol": "TCP"}], **spec},
    }


def test_ready_and_waiting_pods_stand_apart():
    tree = endpoints(service(), chosen(service(), [pod("b", "10.0.0.2", ready=False), pod("a")]))

    (subset,) = tree["subsets"]
    assert [a["ip"] for a in subset["addresses"]] == ["10.0.0.1"]
    assert [a["ip"] for a in subset["notReadyAddresses"]] == ["10.0.0.2"]
    assert subset["ports"] == [{"port": 80, "protocol": "TCP"}]


def test_a_service_may_publish_pods_that_are_not_ready():
    eager = service(publishNotReadyAddresses=True)

    (subset,) = endpoints(eager, chosen(eager, [pod("a", ready=False)]))["subsets"]

    assert "notReadyAddresses" not in subset


def test_pods_without_address_finished_or_of_other_labels_are_left_out():
    pods = [pod("no-ip", ip=""), pod("done", phase="Succeeded"), pod("other", labels={"app": "db"})]

    assert "subsets" not in endpoints(service(), chosen(service(), pods))
    (placeholder,) = plan(
        slice_body(service()), [], groups_of(service(), chosen(service(), pods))
    ).create
    assert placeholder["endpoints"] == placeholder["ports"] == []


def test_a_named_port_is_looked_up_in_each_pod():
    by_name = service(ports=[{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}])
    pods = [
        pod("a", ports=[{"name": "web", "containerPort": 8080}]),
        pod("b", "10.0.0.2", ports=[{"name": "web", "containerPort": 9090}]),
    ]

    tree = endpoints(by_name, chosen(by_name, pods))

    assert [(s["addresses"][0]["ip"], s["ports"][0]["port"]) for s in tree["subsets"]] == [
        ("10.0.0.1", 8080),
        ("10.0.0.2", 9090),
    ]


def test_a_pod_of_the_service_s_subdomain_keeps_its_host_name():
    member = pod("a", hostname="train-worker-0", subdomain="web")
    headless = service(clusterIP="None")

    assert (
        endpoints(headless, [member])["subsets"][0]["addresses"][0]["hostname"] == "train-worker-0"
    )
    assert "service.kubernetes.io/headless" in endpoints(headless, [member])["metadata"]["labels"]
    (piece,) = plan(slice_body(headless), [], groups_of(headless, [member])).create
    assert piece["endpoints"][0]["hostname"] == "train-worker-0"


def stored(changes, there=()):
    """The slices after these changes, as a server would have them."""
    names = {piece["metadata"]["name"] for piece in (*changes.update, *changes.delete)}
    new = [
        {**piece, "metadata": {**piece["metadata"], "name": f"new-{at}"}}
        for at, piece in enumerate(changes.create)
    ]
    return [
        *(piece for piece in there if piece["metadata"]["name"] not in names),
        *changes.update,
        *new,
    ]


def test_slices_are_split_and_change_as_little_as_their_pods():
    web = service()
    pods = [pod(f"p{n:03}", f"10.0.1.{n}") for n in range(2 * LARGEST + 20)]
    there = stored(plan(slice_body(web), [], groups_of(web, pods)))
    assert sorted(len(piece["endpoints"]) for piece in there) == [20, LARGEST, LARGEST]

    assert plan(slice_body(web), there, groups_of(web, pods)) == ([], [], [])
    one_less = plan(slice_body(web), there, groups_of(web, pods[1:]))
    assert (len(one_less.create), len(one_less.update), len(one_less.delete)) == (0, 1, 0)
    there = stored(one_less, there)
    replaced = plan(slice_body(web), there, groups_of(web, [*pods[1:], pod("fresh", "10.0.2.1")]))
    # The gap is filled, the small slice left alone.
    assert [len(piece["endpoints"]) for piece in replaced.update] == [LARGEST]

    none = plan(slice_body(web), there, [])
    assert (len(none.update), len(none.delete)) == (1, 2)


def test_pods_with_other_ports_stand_in_other_slices():
    by_name = service(
        ports=[
            {
                "name": "http",
                "port": 80,
                "targetPort": "web",
                "protocol": "TCP",
                "appProtocol": "h2c",
            }
        ]
    )
    pods = [
        pod("a", ports=[{"name": "web", "containerPort": 8080}]),
        pod("b", "10.0.0.2", ports=[{"name": "web", "containerPort": 9090}]),
    ]

    made = plan(slice_body(by_name), [], groups_of(by_name, pods, {"n1": "north"}.get)).create

    assert [piece["ports"] for piece in made] == [
        [{"name": "http", "port": number, "protocol": "TCP", "appProtocol": "h2c"}]
        for number in (8080, 9090)
    ]
    assert made[0]["endpoints"][0]["zone"] == "north"


def test_endpoints_that_a_user_wrote_are_mirrored_by_family_and_ports():
    tree = {
        "subsets": [
            {
                "addresses": [{"ip": "10.9.0.1"}, {"ip": "fd00::1"}],
                "notReadyAddresses": [{"ip": "10.9.0.2"}],
                "ports": [{"port": 80}],
            },
            {"addresses": [{"ip": "10.9.0.3"}], "ports": [{"port": 81, "name": "other"}]},
        ]
    }

    found = {
        (group.address_type, group.ports[0]["port"]): list(group.endpoints.values())
        for group in mirrored(tree)
    }

    assert [e["conditions"]["ready"] for e in found["IPv4", 80]] == [True, False]
    assert found["IPv6", 80][0]["addresses"] == ["fd00::1"]
    assert found["IPv4", 81][0]["addresses"] == ["10.9.0.3"]
