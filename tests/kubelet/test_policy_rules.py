"""Network policies as rules about addresses: a table of policies, and who may then connect."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from hekla.api.kubernetes.networking import IPBlock, NetworkPolicy
from hekla.local.kubelet.network.policies import (
    Endpoint,
    Group,
    Verdicts,
    compile_policies,
    group_of,
    without,
)

NAMESPACES = {"one": {"team": "x"}, "two": {"team": "y"}, "kube-system": {}}
PODS = [
    Endpoint("one", "10.0.0.1", {"app": "web"}, {("http", "TCP"): 80}),
    Endpoint("one", "10.0.0.2", {"app": "web"}, {("http", "TCP"): 8080}),
    Endpoint("one", "10.0.0.3", {"app": "client"}, {}),
    Endpoint("two", "10.0.0.4", {"app": "client"}, {}),
]
WEB, OTHER_WEB, CLIENT, FAR = (pod.address for pod in PODS)
NAMES = Endpoint("kube-system", "10.0.0.9", {"k8s-app": "kube-dns"}, {("dns", "UDP"): 53})


def verdicts(*specs: dict[str, Any]) -> Verdicts:
    policies = [
        msgspec.convert(
            {"metadata": {"name": f"p{n}", "namespace": "one"}, "spec": spec}, NetworkPolicy
        )
        for n, spec in enumerate(specs)
    ]
    groups = compile_policies(policies, NAMESPACES, PODS, [NAMES])
    sent = [group_of(msgspec.json.decode(msgspec.json.encode(group.tree()))) for group in groups]
    assert sent == groups
    return Verdicts(sent)


def chosen(app: str) -> dict[str, Any]:
    return {"matchLabels": {"app": app}}


ALL: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("specs", "allowed", "refused"),
    [
        pytest.param([], [(FAR, WEB, "TCP", 1)], [], id="nothing is isolated"),
        pytest.param(
            [{"podSelector": ALL}],
            [(WEB, FAR, "TCP", 80), (WEB, WEB, "TCP", 80)],
            [(FAR, WEB, "TCP", 80), (CLIENT, WEB, "TCP", 80)],
            id="ingress is the default, and a pod reaches itself",
        ),
        pytest.param(
            [{"podSelector": ALL, "egress": [{}]}], [(WEB, FAR, "TCP", 80)], [(FAR, WEB, "TCP", 80)],
            id="egress rules are meant to count",
        ),
        pytest.param(
            [{"podSelector": chosen("web"), "ingress": [{"from": [{"podSelector": chosen("client")}]}]}],
            [(CLIENT, WEB, "UDP", 9)], [(FAR, WEB, "UDP", 9), (OTHER_WEB, WEB, "UDP", 9)],
            id="pods of the policy's own namespace",
        ),
        pytest.param(
            [{"podSelector": chosen("web"), "ingress": [
                {"from": [{"podSelector": chosen("client"), "namespaceSelector": {"matchLabels": {"team": "y"}}}]}]}],
            [(FAR, WEB, "TCP", 9)], [(CLIENT, WEB, "TCP", 9)],
            id="both selectors must hold",
        ),
        pytest.param(
            [{"podSelector": chosen("web"), "ingress": [{"from": [{"namespaceSelector": ALL}]}]}],
            [(FAR, WEB, "TCP", 9), (CLIENT, WEB, "TCP", 9)], [("8.8.8.8", WEB, "TCP", 9)],
            id="all namespaces are all pods",
        ),
        pytest.param(
            [{"podSelector": chosen("web"), "ingress": [{"ports": [{"port": "http"}]}]}],
            [(FAR, WEB, "TCP", 80), (FAR, OTHER_WEB, "TCP", 8080)], [(FAR, OTHER_WEB, "TCP", 80), (FAR, WEB, "UDP", 80)],
            id="a named port is the pod's own",
        ),
        pytest.param(
            [{"podSelector": chosen("client"), "policyTypes": ["Egress"], "egress": [{"ports": [{"port": "http"}]}]}],
            [(CLIENT, WEB, "TCP", 80), (CLIENT, OTHER_WEB, "TCP", 8080)], [(CLIENT, WEB, "TCP", 8080), (CLIENT, "8.8.8.8", "TCP", 80)],
            id="a named port going out is that of the other end",
        ),
        pytest.param(
            [{"podSelector": ALL, "policyTypes": ["Egress"], "egress": [
                {"to": [{"ipBlock": {"cidr": "8.0.0.0/8", "except": ["8.8.0.0/16"]}}], "ports": [{"port": 5, "endPort": 7}]}]}],
            [(CLIENT, "8.9.0.1", "TCP", 6)], [(CLIENT, "8.8.0.1", "TCP", 6), (CLIENT, "8.9.0.1", "TCP", 8), (CLIENT, WEB, "TCP", 6)],
            id="blocks and ranges",
        ),
        pytest.param(
            [{"podSelector": ALL, "ingress": [{"ports": [{"protocol": "UDP"}]}]},
             {"podSelector": chosen("web"), "ingress": [{"from": [{"podSelector": chosen("client")}]}]}],
            [(FAR, WEB, "UDP", 1), (CLIENT, WEB, "TCP", 1)], [(FAR, WEB, "TCP", 1), (WEB, CLIENT, "TCP", 1)],
            id="policies add up",
        ),
        pytest.param(
            [{"podSelector": ALL, "policyTypes": ["Egress"], "egress": [
                {"to": [{"namespaceSelector": ALL, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}], "ports": [
                    {"port": "dns", "protocol": "UDP"}]}]}],
            [(CLIENT, "10.0.0.9", "UDP", 53)], [(CLIENT, "10.0.0.9", "TCP", 53)],
            id="the server of names",
        ),
    ],
)  # fmt: skip
def test_who_may_connect(
    specs: list[dict[str, Any]], allowed: list[Any], refused: list[Any]
) -> None:
    found = verdicts(*specs)

    assert [attempt for attempt in allowed if not found.allow(*attempt)] == []
    assert [attempt for attempt in refused if found.allow(*attempt)] == []


def test_pods_of_which_the_same_is_allowed_are_one_group() -> None:
    policy = msgspec.convert(
        {
            "metadata": {"namespace": "one"},
            "spec": {"podSelector": ALL, "ingress": [{"from": [{"podSelector": ALL}]}]},
        },
        NetworkPolicy,
    )

    assert [group.pods for group in compile_policies([policy], NAMESPACES, PODS)] == [
        (WEB, OTHER_WEB, CLIENT)
    ]


def test_exceptions_are_cut_out_of_a_block() -> None:
    assert without(IPBlock("10.0.0.0/30", ["10.0.0.0/31", "10.0.0.2/32"])) == ["10.0.0.3/32"]
    assert without(IPBlock("10.0.0.0/30", ["10.0.0.0/8"])) == []
    assert without(IPBlock("10.0.0.0/30", ["10.0.0.0/30"])) == []
    assert without(IPBlock("fd00::/8", [])) == []
    assert Group("Ingress", (), ()).tree() == {"direction": "Ingress", "pods": (), "rules": []}
