"""Checklist 107 to 112: webhooks and admission policies."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import hooks, objects
from tests.cluster.api import Api, Tree, eventually
from tests.cluster.conftest import Namespace
from tests.cluster.hooks import Hook

GROUP = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}


class Webhooks:
    """Registers webhooks that see one namespace alone, and takes them back."""

    def __init__(self, api: Api, hook: Hook, ns: Namespace) -> None:
        self.api, self.hook, self.ns = api, hook, ns
        self.made: list[str] = []

    def register(self, kind: str, name: str, *rules: Tree, **more: Any) -> None:
        full = f"{name}.{uuid.uuid4().hex[:6]}.example.com"
        webhook = {
            "name": f"{name}.example.com", "clientConfig": self.hook.client(f"/{name}"), "rules": list(rules or [CONFIG_MAPS]),
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 5,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.ns.name}}, **more,
        }  # fmt: skip
        path = f"{GROUP}/{kind}webhookconfigurations"
        self.api.create(path, {"metadata": {"name": full}, "webhooks": [webhook]})
        self.made.append(f"{path}/{full}")

    def settled(self, count: int) -> None:
        """Waits until so many webhooks are asked, as a real server takes up to a second to see them."""

        def all_asked() -> bool:
            self.hook.asked.clear()
            self.api.post(self.ns.path("configmaps"), objects.config_map("probe", {"a": "1"}), dryRun="All")
            return len(set(self.hook.paths())) >= count

        eventually(all_asked)
        self.hook.asked.clear()


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[Hook]:
    with hooks.serving(tmp_path) as served:
        yield served


@pytest.fixture
def webhooks(api: Api, hook: Hook, ns: Namespace) -> Iterator[Webhooks]:
    made = Webhooks(api, hook, ns)
    yield made
    for path in made.made:
        api.delete(path)


def test_item_107_mutating_webhooks(api: Api, ns: Namespace, hook: Hook, webhooks: Webhooks) -> None:
    def answer(path: str, request: Tree) -> Tree:
        word = path[1:]
        seen = request["object"]["data"].get("seen", "")
        return hooks.patch({"op": "add", "path": "/data/seen", "value": f"{seen}{word}"}) if seen.count(word) == 0 else {"allowed": True}

    hook.answer = answer
    webhooks.register("mutating", "b", reinvocationPolicy="Never")
    webhooks.register("mutating", "a", reinvocationPolicy="IfNeeded")
    webhooks.settled(2)
    made = api.create(ns.path("configmaps"), objects.config_map("patched"))
    assert made["data"]["seen"] == "ab"
    assert api.get(ns.path("configmaps", "patched")).tree["data"]["seen"] == "ab"
    assert hook.paths() == ["/a", "/b", "/a"]


def test_item_108_a_denial(api: Api, ns: Namespace, hook: Hook, webhooks: Webhooks) -> None:
    hook.answer = lambda path, request: {"allowed": False, "status": {"code": 418, "message": "no way", "reason": "Teapot"}}
    webhooks.register("validating", "v")
    webhooks.settled(1)
    answer = api.post(ns.path("configmaps"), objects.config_map("denied"))
    assert (answer.status, answer.reason) == (418, "Teapot")
    assert answer.message == 'admission webhook "v.example.com" denied the request: no way'
    hook.answer = lambda path, request: {"allowed": False}
    answer = api.post(ns.path("configmaps"), objects.config_map("denied"))
    assert answer.status == 400 and answer.message.endswith("denied the request without explanation")
    assert api.get(ns.path("configmaps", "denied")).status == 404


def test_item_108_an_unreachable_webhook(api: Api, ns: Namespace, hook: Hook, webhooks: Webhooks) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nowhere = {"url": f"https://127.0.0.1:{free.getsockname()[1]}/x", "caBundle": hook.authority}
    secrets = {**CONFIG_MAPS, "resources": ["secrets"]}
    webhooks.register("validating", "fails", secrets, clientConfig=nowhere, failurePolicy="Fail")
    answer = eventually(lambda: _refused(api, ns))
    assert (answer.status, answer.reason) == (500, "InternalError")
    assert 'failed calling webhook "fails.example.com"' in answer.message
    api.patch(webhooks.made[0], [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}], "application/json-patch+json")
    eventually(lambda: _refused(api, ns) is None)


def _refused(api: Api, ns: Namespace) -> Any:
    answer = api.post(ns.path("secrets"), {"metadata": {"generateName": "s-"}})
    return answer if answer.status != 201 else None


def test_item_109_what_webhooks_do_not_see(api: Api, ns: Namespace, hook: Hook, webhooks: Webhooks) -> None:
    webhooks.register("validating", "named", objectSelector={"matchLabels": {"watch": "me"}})
    webhooks.register("validating", "elsewhere", namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}})
    webhooks.register("validating", "all", sideEffects="NoneOnDryRun")
    webhooks.settled(1)
    api.create(ns.path("configmaps"), objects.config_map("unlabelled"))
    assert hook.paths() == ["/all"]
    hook.asked.clear()
    api.create(ns.path("configmaps"), objects.config_map("labelled", labels={"watch": "me"}))
    assert sorted(hook.paths()) == ["/all", "/named"]
    hook.asked.clear()
    api.post(ns.path("configmaps"), objects.config_map("dry"), dryRun="All")
    assert [request["dryRun"] for _, request in hook.asked] == [True]


def test_item_110_deletions_and_subresources(api: Api, ns: Namespace, hook: Hook, webhooks: Webhooks) -> None:
    pods = {**CONFIG_MAPS, "resources": ["pods", "pods/binding", "pods/eviction"], "operations": ["CREATE", "DELETE"]}
    webhooks.register("validating", "pods", pods, CONFIG_MAPS)
    webhooks.settled(1)
    api.create(ns.path("pods"), objects.pod("followed"))
    api.post(ns.path("pods", "followed", "binding"), {"metadata": {"name": "followed"}, "target": {"kind": "Node", "name": "x"}})
    api.post(ns.path("pods", "followed", "eviction"), {"metadata": {"name": "followed"}})
    api.delete(ns.path("pods", "followed"), {"gracePeriodSeconds": 0})
    asked = [(request["operation"], request.get("subResource", "")) for _, request in hook.asked]
    assert asked[:3] == [("CREATE", ""), ("CREATE", "binding"), ("CREATE", "eviction")]
    operation, deletion = asked[-1], hook.asked[-1][1]
    assert operation == ("DELETE", "")
    assert deletion["object"] is None and deletion["oldObject"]["metadata"]["name"] == "followed"


def test_item_110_connections_reach_webhooks(api: Api, ns: Namespace, hook: Hook, webhooks: Webhooks) -> None:
    hook.answer = lambda path, request: {"allowed": request["operation"] != "CONNECT"}
    webhooks.register("validating", "exec", {**CONFIG_MAPS, "resources": ["pods/exec"], "operations": ["CONNECT"]}, CONFIG_MAPS)
    webhooks.settled(1)
    api.create(ns.path("pods"), objects.pod("entered", nodeName="no-such-node"))
    answer = api.post(ns.path("pods", "entered", "exec"), b"", command="true", stdout="true")
    assert "denied the request" in answer.text, answer
    assert [request["operation"] for _, request in hook.asked] == ["CONNECT"]


def test_item_111_validating_policies(api: Api, ns: Namespace) -> None:
    name = f"vp-{uuid.uuid4().hex[:6]}"
    rule = {**CONFIG_MAPS}
    validation = {"expression": "object.data.a == 'good'", "message": "not good"}
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    binding = {"policyName": name, "validationActions": ["Deny"],
               "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns.name}}}}  # fmt: skip
    api.create(f"{GROUP}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": policy})
    api.create(f"{GROUP}/validatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": binding})
    try:
        answer = eventually(lambda: _denied(api, ns), 4)
        assert answer.status == 422
        assert f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: not good" in answer.message
    finally:
        api.delete(f"{GROUP}/validatingadmissionpolicybindings/{name}")
        api.delete(f"{GROUP}/validatingadmissionpolicies/{name}")


def _denied(api: Api, ns: Namespace) -> Any:
    answer = api.post(ns.path("configmaps"), {"metadata": {"generateName": "bad-"}, "data": {"a": "bad"}})
    return answer if answer.status != 201 else None


def test_item_112_mutating_policies(api: Api, ns: Namespace) -> None:
    name = f"mp-{uuid.uuid4().hex[:6]}"
    expression = 'Object{metadata: Object.metadata{labels: {"added": "yes"}}}'
    policy = {"matchConstraints": {"resourceRules": [CONFIG_MAPS]}, "reinvocationPolicy": "Never", "failurePolicy": "Fail",
              "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}]}  # fmt: skip
    binding = {"policyName": name, "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns.name}}}}
    api.create(f"{GROUP}/mutatingadmissionpolicies", {"metadata": {"name": name}, "spec": policy})
    api.create(f"{GROUP}/mutatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": binding})
    try:

        def labelled() -> bool:
            made = api.create(ns.path("configmaps"), {"metadata": {"generateName": "m-"}})
            return made["metadata"].get("labels") == {"added": "yes"}

        eventually(labelled, 4)
    finally:
        api.delete(f"{GROUP}/mutatingadmissionpolicybindings/{name}")
        api.delete(f"{GROUP}/mutatingadmissionpolicies/{name}")
