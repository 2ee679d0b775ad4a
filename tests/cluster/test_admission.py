"""Checklist 107 to 112: webhooks and admission policies."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import hooks, objects
from tests.cluster.api import Api, Tree, eventually
from tests.cluster.conftest import Namespace
from tests.cluster.hooks import Hook
from tests.ports import free_port

GROUP = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAPS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps"],
    "operations": ["CREATE"],
}


class Webhooks:
    """Registers webhooks that see one namespace alone, and takes them back."""

    def __init__(self, api: Api, hook: Hook, ns: Namespace) -> None:
        self.api, self.hook, self.ns = api, hook, ns
        self.made: list[str] = []

    def register(self, kind: str, name: str, *rules: Tree, **more: Any) -> None:
        full = f"{name}.{uuid.uuid4().hex[:6]}.example.com"
        webhook = {
            "name": f"{name}.example.com",
            "clientConfig": self.hook.client(f"/{name}"),
            "rules": list(rules or [CONFIG_MAPS]),
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 5,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.ns.name}},
            **more,
        }
        path = f"{GROUP}/{kind}webhookconfigurations"
        self.api.create(path, {"metadata": {"name": full}, "webhooks": [webhook]})
        self.made.append(f"{path}/{full}")

    def settled(self, count: int) -> None:
        """Waits until so many webhooks are asked, as a real server takes up to a second to see
        them."""

        def all_asked() -> bool:
            self.hook.asked.clear()
            self.api.post(
                self.ns.path("configmaps"), objects.config_map("probe", {"a": "1"}), dryRun="All"
            )
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


def test_item_107_mutating_webhooks(
    api: Api, ns: Namespace, hook: Hook, webhooks: Webhooks
) -> None:
    def answer(path: str, request: Tree) -> Tree:
        word = path[1:]
        seen = request["object"]["data"].get("seen", "")
        return (
            hooks.patch({"op": "add", "path": "/data/seen", "value": f"{seen}{word}"})
            if seen.count(word) == 0
            else {"allowed": True}
        )

    hook.answer = answer
    webhooks.register("mutating", "b", reinvocationPolicy="Never")
    webhooks.register("mutating", "a", reinvocationPolicy="IfNeeded")
    webhooks.settled(2)
    made = api.create(ns.path("configmaps"), objects.config_map("patched"))
    assert made["data"]["seen"] == "ab"
    assert api.get(ns.path("configmaps", "patched")).tree["data"]["seen"] == "ab"
    assert hook.paths() == ["/a", "/b", "/a"]


def test_item_108_a_denial(api: Api, ns: Namespace, hook: Hook, webhooks: Webhooks) -> None:
    hook.answer = lambda path, request: {
        "allowed": False,
        "status": {"code": 418, "message": "no way", "reason": "Teapot"},
    }
    webhooks.register("validating", "v")
    webhooks.settled(1)
    answer = api.post(ns.path("configmaps"), objects.config_map("denied"))
    assert (answer.status, answer.reason) == (418, "Teapot")
    assert answer.message == 'admission webhook "v.example.com" denied the request: no way'
    hook.answer = lambda path, request: {"allowed": False}
    answer = api.post(ns.path("configmaps"), objects.config_map("denied"))
    assert answer.status == 400 and answer.message.endswith(
        "denied the request without explanation"
    )
    assert api.get(ns.path("configmaps", "denied")).status == 404


def test_item_108_an_unreachable_webhook(
    api: Api, ns: Namespace, hook: Hook, webhooks: Webhooks
) -> None:
    nowhere = {"url": f"https://127.0.0.1:{free_port()}/x", "caBundle": hook.authority}
    secrets = {**CONFIG_MAPS, "resources": ["secrets"]}
    webhooks.register("validating", "fails", secrets, clientConfig=nowhere, failurePolicy="Fail")
    answer = eventually(lambda: _refused(api, ns))
    assert (answer.status, answer.reason) == (500, "InternalError")
    assert 'failed calling webhook "fails.example.com"' in answer.message
    api.patch(
        webhooks.made[0],
        [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}],
        "application/json-patch+json",
    )
    eventually(lambda: _refused(api, ns) is None)


def _refused(api: Api, ns: Namespace) -> Any:
    answer = api.post(ns.path("secrets"), {"metadata": {"generateName": "s-"}})
    return answer if answer.status != 201 else None


def test_item_109_what_webhooks_do_not_see(
    api: Api, ns: Namespace, hook: Hook, webhooks: Webhooks
) -> None:
    webhooks.register("validating", "named", objectSelector={"matchLabels": {"watch": "me"}})
    webhooks.register(
        "validating",
        "elsewhere",
        namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}},
    )
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


def test_item_110_deletions_and_subresources(
    api: Api, ns: Namespace, hook: Hook, webhooks: Webhooks
) -> None:
    pods = {
        **CONFIG_MAPS,
        "resources": ["pods", "pods/binding", "pods/eviction"],
        "operations": ["CREATE", "DELETE"],
    }
    webhooks.register("validating", "pods", pods, CONFIG_MAPS)
    webhooks.settled(1)
    api.create(ns.path("pods"), objects.pod("followed"))
    api.post(
        ns.path("pods", "followed", "binding"),
        {"metadata": {"name": "followed"}, "target": {"kind": "Node", "name": "x"}},
    )
    api.post(ns.path("pods", "followed", "eviction"), {"metadata": {"name": "followed"}})
    api.delete(ns.path("pods", "followed"), {"gracePeriodSeconds": 0})
    asked = [(request["operation"], request.get("subResource", "")) for _, request in hook.asked]
    assert asked[:3] == [("CREATE", ""), ("CREATE", "binding"), ("CREATE", "eviction")]
    operation, deletion = asked[-1], hook.asked[-1][1]
    assert operation == ("DELETE", "")
    assert deletion["object"] is None and deletion["oldObject"]["metadata"]["name"] == "followed"


def test_item_110_connections_reach_webhooks(
    api: Api, ns: Namespace, hook: Hook, webhooks: Webhooks
) -> None:
    hook.answer = lambda path, request: {"allowed": request["operation"] != "CONNECT"}
    webhooks.register(
        "validating",
        "exec",
        {**CONFIG_MAPS, "resources": ["pods/exec"], "operations": ["CONNECT"]},
        CONFIG_MAPS,
    )
    webhooks.settled(1)
    api.create(ns.path("pods"), objects.pod("entered", nodeName="no-such-node"))
    answer = api.post(ns.path("pods", "entered", "exec"), b"", command="true", stdout="true")
    assert "denied the request" in answer.text, answer
    assert [request["operation"] for _, request in hook.asked] == ["CONNECT"]


class Policies:
    """Makes policies that are about one namespace alone, and takes them back."""

    def __init__(self, api: Api, ns: Namespace) -> None:
        self.api, self.ns = api, ns
        self.made: list[str] = []

    def add(self, kind: str, spec: Tree, binding: Tree, group: str = GROUP) -> str:
        """The name of the policy and of its binding."""
        name = f"p-{uuid.uuid4().hex[:6]}"
        here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.ns.name}}}
        full = {
            "matchConstraints": {"resourceRules": [CONFIG_MAPS]},
            "failurePolicy": "Fail",
            **spec,
        }
        bound = {"policyName": name, "matchResources": here, **binding}
        for plural, tree in (
            (f"{kind}admissionpolicies", full),
            (f"{kind}admissionpolicybindings", bound),
        ):
            self.api.create(f"{group}/{plural}", {"metadata": {"name": name}, "spec": tree})
            self.made.insert(0, f"{group}/{plural}/{name}")
        return name


@pytest.fixture
def alone(new_ns: Callable[[], Namespace]) -> Namespace:
    """A namespace of its own: a policy that is deleted is asked for a second more."""
    return new_ns()


@pytest.fixture
def policies(api: Api, alone: Namespace) -> Iterator[Policies]:
    made = Policies(api, alone)
    yield made
    for path in made.made:
        api.delete(path)


def test_item_111_a_validating_policy_denies(
    api: Api, alone: Namespace, policies: Policies
) -> None:
    name = policies.add(
        "validating",
        {"validations": [{"expression": "object.data.a == 'good'", "message": "not good"}]},
        {"validationActions": ["Deny"]},
    )
    answer = eventually(lambda: _denied(api, alone))
    text = f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: not good"
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message.startswith('configmaps "bad-') and answer.message.endswith(
        f'" is forbidden: {text}'
    )
    assert answer.causes == [{"message": text}]
    answer = api.post(alone.path("configmaps"), {"metadata": {"name": "empty"}})
    assert answer.message.endswith(
        "denied request: expression 'object.data.a == 'good'' resulted in error: no such key: data"
    )
    api.delete(policies.made[0])
    eventually(lambda: _denied(api, alone) is None)


def test_item_111_a_validating_policy_warns(api: Api, alone: Namespace, policies: Policies) -> None:
    name = policies.add(
        "validating",
        {"validations": [{"expression": "false", "message": "mind"}]},
        {"validationActions": ["Warn"]},
    )

    def warned() -> list[str]:
        answer = api.post(alone.path("configmaps"), {"metadata": {"generateName": "warned-"}})
        assert answer.status == 201
        return answer.warnings

    (warning,) = eventually(warned)
    assert (
        warning
        == f"299 - \"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{name}': mind\""
    )


def test_item_111_parameters_of_a_policy(api: Api, alone: Namespace, policies: Policies) -> None:
    api.create(alone.path("configmaps"), objects.config_map("limits", {"word": "good"}))
    policies.add(
        "validating",
        {
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "validations": [
                {
                    "expression": "object.data.a == params.data.word",
                    "messageExpression": "'say ' + params.data.word",
                }
            ],
        },
        {
            "validationActions": ["Deny"],
            "paramRef": {"name": "limits", "parameterNotFoundAction": "Deny"},
        },
    )

    def said() -> bool:
        answer = _denied(api, alone)
        return answer is not None and bool(answer.message.endswith("denied request: say good"))

    eventually(said)
    assert (
        api.post(alone.path("configmaps"), objects.config_map("fine", {"a": "good"})).status == 201
    )


def test_item_111_expressions_are_compiled_at_creation(api: Api) -> None:
    policy = {
        "matchConstraints": {"resourceRules": [CONFIG_MAPS]},
        "validations": [{"expression": "foo +"}],
    }
    answer = api.post(
        f"{GROUP}/validatingadmissionpolicies", {"metadata": {"name": "never-made"}, "spec": policy}
    )
    assert answer.status == 422 and answer.cause_fields == ["spec.validations[0].expression"]
    assert (
        'Invalid value: "foo +": compilation failed: ERROR: <input>:1:6: Syntax error'
        in answer.message
    )


def _denied(api: Api, ns: Namespace) -> Any:
    answer = api.post(
        ns.path("configmaps"), {"metadata": {"generateName": "bad-"}, "data": {"a": "bad"}}
    )
    return answer if answer.status != 201 else None


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_item_112_mutating_policies(
    api: Api, alone: Namespace, policies: Policies, version: str
) -> None:
    group = GROUP.replace("/v1", f"/{version}")
    if api.get(f"{group}/mutatingadmissionpolicies").status == 404:
        pytest.skip(f"this server does not serve {version} policies")
    expression = 'Object{metadata: Object.metadata{labels: {"added": "yes"}}}'
    operations = (
        '[JSONPatch{op: "add", path: "/data", value: {"label": object.metadata.labels["added"]}}]'
    )
    policies.add(
        "mutating",
        {
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": expression},
                },
                {"patchType": "JSONPatch", "jsonPatch": {"expression": operations}},
            ],
        },
        {},
        group,
    )

    def changed() -> Tree | None:
        made = api.create(alone.path("configmaps"), {"metadata": {"generateName": "m-"}})
        return made if made["metadata"].get("labels") else None

    made = eventually(changed)
    assert made["metadata"]["labels"] == {"added": "yes"} and made["data"] == {"label": "yes"}


def test_item_112_a_patch_that_does_not_fit(api: Api, alone: Namespace, policies: Policies) -> None:
    patch = {
        "patchType": "JSONPatch",
        "jsonPatch": {"expression": '[JSONPatch{op: "remove", path: "/zz"}]'},
    }
    name = policies.add("mutating", {"reinvocationPolicy": "Never", "mutations": [patch]}, {})
    answer = eventually(lambda: _denied(api, alone))
    assert (answer.status, answer.reason) == (403, "Invalid")
    assert answer.message == (
        f"policy '{name}' with binding '{name}' denied request: JSON Patch: error in remove for path: '/zz': "
        "Unable to remove nonexistent key: zz: missing value"
    )


def test_item_113_expressions_about_devices(api: Api, ns: Namespace) -> None:
    resource = "/apis/resource.k8s.io/v1"
    claim = {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "gpu"}}]}}
    made = api.create(
        f"{resource}/namespaces/{ns}/resourceclaims",
        {"metadata": {"name": "counted"}, "spec": claim},
    )
    assert made["spec"]["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
    }
    bad = {
        "metadata": {"name": "never-made"},
        "spec": {"selectors": [{"cel": {"expression": "device.nope == 'x'"}}]},
    }
    answer = api.post(f"{resource}/deviceclasses", bad)
    assert answer.status == 422 and answer.cause_fields == ["spec.selectors[0].cel.expression"]
    assert "compilation failed: ERROR: <input>:1:7: undefined field 'nope'" in answer.message
