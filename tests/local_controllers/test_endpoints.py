"""What Endpoints and EndpointSlices say of a service's pods."""

from __future__ import annotations

import msgspec

from hekla.local.controllers.endpoints import chosen, endpoints, slice_of
from hekla.local.controllers.pods import Pod


def pod(name, ip="10.0.0.1", *, ready=True, phase="Running", labels=None, hostname="", subdomain="", ports=()):
    return msgspec.convert({
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels or {"app": "web"}},
        "spec": {"nodeName": "n1", "hostname": hostname, "subdomain": subdomain, "containers": [{"ports": list(ports)}]},
        "status": {"phase": phase, "podIP": ip, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }, Pod)


def service(**spec):
    return {
        "metadata": {"name": "web", "namespace": "default", "uid": "u1"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "protocol": "TCP"}], **spec},
    }


def test_ready_and_waiting_pods_stand_apart():
    tree = endpoints(service(), chosen(service(), [pod("b", "10.0.0.2", ready=False), pod("a")]))

    subset, = tree["subsets"]
    assert [a["ip"] for a in subset["addresses"]] == ["10.0.0.1"]
    assert [a["ip"] for a in subset["notReadyAddresses"]] == ["10.0.0.2"]
    assert subset["ports"] == [{"port": 80, "protocol": "TCP"}]


def test_a_service_may_publish_pods_that_are_not_ready():
    eager = service(publishNotReadyAddresses=True)

    subset, = endpoints(eager, chosen(eager, [pod("a", ready=False)]))["subsets"]

    assert "notReadyAddresses" not in subset


def test_pods_without_address_finished_or_of_other_labels_are_left_out():
    pods = [pod("no-ip", ip=""), pod("done", phase="Succeeded"), pod("other", labels={"app": "db"})]

    assert "subsets" not in endpoints(service(), chosen(service(), pods))
    assert slice_of(service(), chosen(service(), pods))["endpoints"] == []


def test_a_named_port_is_looked_up_in_each_pod():
    by_name = service(ports=[{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}])
    pods = [pod("a", ports=[{"name": "web", "containerPort": 8080}]), pod("b", "10.0.0.2", ports=[{"name": "web", "containerPort": 9090}])]

    tree = endpoints(by_name, chosen(by_name, pods))

    assert [(s["addresses"][0]["ip"], s["ports"][0]["port"]) for s in tree["subsets"]] == [("10.0.0.1", 8080), ("10.0.0.2", 9090)]


def test_a_pod_of_the_service_s_subdomain_keeps_its_host_name():
    member = pod("a", hostname="train-worker-0", subdomain="web")
    headless = service(clusterIP="None")

    assert endpoints(headless, [member])["subsets"][0]["addresses"][0]["hostname"] == "train-worker-0"
    assert "service.kubernetes.io/headless" in endpoints(headless, [member])["metadata"]["labels"]
    assert slice_of(headless, [member])["endpoints"][0]["hostname"] == "train-worker-0"
