"""Admission policies over HTTP: what they deny, warn of and change (local-cluster 6.5, 6.6)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from hekla.api.trees import Json
from tests.apiserver.http import CONFIG_MAPS, Answer, Http, config_map

GROUP = "/apis/admissionregistration.k8s.io/v1"


class Policies:
    """Makes policies that are about objects with one label alone, and takes them back."""

    def __init__(self, http: Http) -> None:
        self.http = http
        self.mark = f"m{uuid.uuid4().hex[:8]}"
        self.made: list[str] = []

    def constraints(self, *operations: str, resources: tuple[str, ...] = ("configmaps",)) -> Json:
        verbs = list(operations or ("CREATE", "UPDATE"))
        rule = {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": verbs,
            "resources": list(resources),
        }
        return {"resourceRules": [rule], "objectSelector": {"matchLabels": {"mark": self.mark}}}

    def add(self, plural: str, name: str, spec: Json) -> Answer:
        answer = self.http.post(
            f"{GROUP}/{plural}", {"metadata": {"name": f"{name}-{self.mark}"}, "spec": spec}
        )
        if answer.status == 201:
            self.made.append(f"{GROUP}/{plural}/{name}-{self.mark}")
        return answer

    def validating(
        self,
        *validations: Json,
        actions: tuple[str, ...] = ("Deny",),
        reference: Json | None = None,
        **spec: Any,
    ) -> Answer:
        full = {"matchConstraints": self.constraints(), "validations": list(validations), **spec}
        answer = self.add("validatingadmissionpolicies", "vp", full)
        if answer.status == 201:
            binding: Json = {"policyName": f"vp-{self.mark}", "validationActions": list(actions)}
            if reference is not None:
                binding["paramRef"] = reference
            assert self.add("validatingadmissionpolicybindings", "vpb", binding).status == 201
        return answer

    def mutating(self, *mutations: Json, name: str = "mp", **spec: Any) -> Answer:
        full = {
            "matchConstraints": self.constraints(),
            "reinvocationPolicy": "Never",
            "mutations": list(mutations),
            **spec,
        }
        answer = self.add("mutatingadmissionpolicies", name, full)
        if answer.status == 201:
            assert (
                self.add(
                    "mutatingadmissionpolicybindings", name, {"policyName": f"{name}-{self.mark}"}
                ).status
                == 201
            )
        return answer

    def create(self, name: str, data: Json | None = None, **metadata: Any) -> Answer:
        tree = config_map(f"{name}-{self.mark}")
        tree["metadata"] = {**tree["metadata"], "labels": {"mark": self.mark}, **metadata}
        if data is not None:
            tree["data"] = data
        else:
            tree.pop("data", None)
        return self.http.post(CONFIG_MAPS, tree)


@pytest.fixture
def policies(http: Http) -> Iterator[Policies]:
    made = Policies(http)
    yield made
    for path in made.made:
        http.delete(path)


def apply(expression: str) -> Json:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patch(expression: str) -> Json:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def test_the_client_gets_the_message_of_the_first_failed_validation(policies: Policies) -> None:
    policies.validating(
        {"expression": "has(object.data)", "message": "data is needed"},
        {
            "expression": "size(object.data) < 3",
            "messageExpression": "'has ' + string(size(object.data)) + ' entries'",
            "reason": "Forbidden",
        },
    )
    answer = policies.create("a")
    name, mark = f"a-{policies.mark}", policies.mark
    start = f"ValidatingAdmissionPolicy 'vp-{mark}' with binding 'vpb-{mark}' denied request: "
    assert (answer.status, answer.tree["reason"]) == (422, "Invalid")
    assert answer.tree["message"] == f'configmaps "{name}" is forbidden: {start}data is needed'
    assert answer.tree["details"]["causes"] == [{"message": f"{start}data is needed"}]
    answer = policies.create("b", {"a": "1", "b": "2", "c": "3"})
    assert (answer.status, answer.tree["reason"]) == (403, "Forbidden")
    assert answer.tree["message"].endswith("denied request: has 3 entries")
    assert policies.create("c", {"a": "1"}).status == 201


def test_a_failing_expression_denies_according_to_the_failure_policy(
    policies: Policies,
) -> None:
    policies.validating({"expression": "object.data.a == 'x'"})
    answer = policies.create("a")
    assert answer.tree["message"].endswith(
        "expression 'object.data.a == 'x'' resulted in error: no such key: data"
    )
    assert (
        policies.create("b", {"a": "y"})
        .tree["message"]
        .endswith("denied request: failed expression: object.data.a == 'x'")
    )


def test_a_failure_that_is_ignored_lets_the_request_pass(policies: Policies) -> None:
    policies.validating({"expression": "object.data.a == 'x'"}, failurePolicy="Ignore")
    assert policies.create("a").status == 201
    assert policies.create("b", {"a": "y"}).status == 422


def test_warnings_are_returned_and_nothing_is_refused(policies: Policies) -> None:
    policies.validating(
        {"expression": "false", "message": "mind the gap"}, actions=("Warn", "Audit")
    )
    answer = policies.create("a")
    mark = policies.mark
    wanted = f"Validation failed for ValidatingAdmissionPolicy 'vp-{mark}' with binding 'vpb-{mark}': mind the gap"
    assert answer.status == 201
    assert answer.headers["warning"] == f'299 - "{wanted}"'


def test_variables_are_lazy_and_see_those_before_them(policies: Policies) -> None:
    policies.validating(
        {"expression": "variables.good || variables.broken == 1"},
        variables=[
            {"name": "count", "expression": "has(object.data) ? size(object.data) : 0"},
            {"name": "good", "expression": "variables.count > 0"},
            {"name": "broken", "expression": "1 / 0"},
        ],
    )
    assert policies.create("a", {"a": "1"}).status == 201
    assert policies.create("b").tree["message"].endswith("resulted in error: division by zero")


def test_parameters_come_from_named_and_from_selected_objects(
    policies: Policies, http: Http
) -> None:
    name = f"limit-{policies.mark}"
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    policies.validating(
        {
            "expression": "size(object.data) <= int(params.data.most)",
            "messageExpression": "'at most ' + params.data.most",
        },
        paramKind=kind,
        reference={"name": name, "parameterNotFoundAction": "Deny"},
    )
    answer = policies.create("a", {"a": "1"})
    assert answer.tree["message"].endswith(
        "no params found for policy binding with `Deny` parameterNotFoundAction"
    )
    http.post(CONFIG_MAPS, {"metadata": {"name": name}, "data": {"most": "1"}})
    assert policies.create("b", {"a": "1"}).status == 201
    assert policies.create("c", {"a": "1", "b": "2"}).tree["message"].endswith("at most 1")


def test_match_conditions_choose_the_requests(policies: Policies) -> None:
    only = {"name": "only-x", "expression": "object.metadata.name.startsWith('x-')"}
    policies.validating({"expression": "false"}, matchConditions=[only])
    assert policies.create("a").status == 201
    assert policies.create("x").status == 422


def test_policies_see_who_asks_and_what_they_may(policies: Policies) -> None:
    policies.validating(
        {
            "expression": "request.userInfo.groups.exists(g, g == 'system:masters') && request.operation == 'CREATE' && "
            "namespaceObject.metadata.name == request.namespace && authorizer.requestResource.check('delete').allowed() && "
            "authorizer.group('').resource('pods').namespace('default').check('get').allowed() && "
            "!authorizer.serviceAccount('default', 'nobody').group('').resource('secrets').check('get').allowed()"
        }
    )
    assert policies.create("a").status == 201


def test_bad_expressions_are_refused_at_creation(policies: Policies) -> None:
    answer = policies.validating({"expression": "foo +"})
    syntax = (
        "compilation failed: ERROR: <input>:1:6: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', "
        "'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | foo +\n | .....^"
    )
    assert answer.status == 422
    assert answer.tree["details"]["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "message": f'Invalid value: "foo +": {syntax}',
            "field": "spec.validations[0].expression",
        }
    ]
    for expression, words in [
        ("object.x", "must evaluate to bool but got dyn"),
        ("params.x == 1", "undeclared reference to 'params' (in container '')"),
        ("variables.nope", "undeclared reference to 'variables' (in container '')"),
        ("request.nope == ''", "undefined field 'nope'"),
    ]:
        assert words in policies.validating({"expression": expression}).tree["message"], expression
    assert policies.mutating(apply("{'a': 1}")).status == 422
    assert policies.mutating(patch("JSONPatch{op: 'add'}")).status == 422


def test_apply_configurations_merge(policies: Policies) -> None:
    policies.mutating(
        apply('Object{metadata: Object.metadata{labels: {"added": object.metadata.name}}}'),
        apply('Object{data: {"seen": object.metadata.labels["added"]}}'),
    )
    made = policies.create("a", {"kept": "1"}).tree
    assert made["metadata"]["labels"] == {"mark": policies.mark, "added": f"a-{policies.mark}"}
    assert made["data"] == {"kept": "1", "seen": f"a-{policies.mark}"}


def test_json_patches_are_carried_out(policies: Policies) -> None:
    policies.mutating(
        patch(
            '[JSONPatch{op: "test", path: "/data/a", value: "1"}, '
            'JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("x.io/y"), value: "z"}, '
            'JSONPatch{op: "replace", path: "/data/a", value: "2"}]'
        )
    )
    made = policies.create("a", {"a": "1"}).tree
    assert made["metadata"]["labels"]["x.io/y"] == "z" and made["data"] == {"a": "2"}
    unchanged = policies.create("b", {"a": "9"}).tree
    assert unchanged["data"] == {"a": "9"}


def test_a_patch_that_does_not_fit_is_forbidden(policies: Policies) -> None:
    policies.mutating(patch('[JSONPatch{op: "remove", path: "/zz"}]'))
    answer = policies.create("a")
    mark = policies.mark
    assert (answer.status, answer.tree["reason"]) == (403, "Invalid")
    assert answer.tree["message"] == (
        f"policy 'mp-{mark}' with binding 'mp-{mark}' denied request: JSON Patch: error in remove for path: '/zz': "
        "Unable to remove nonexistent key: zz: missing value"
    )


def test_atomic_lists_are_not_applied(policies: Policies) -> None:
    policies.mutating(
        apply(
            'Object{spec: Object.spec{containers: [Object.spec.containers{name: "c", args: ["x"]}]}}'
        ),
        matchConstraints=policies.constraints(resources=("pods",)),
    )
    pod = {
        "metadata": {"name": f"p-{policies.mark}", "labels": {"mark": policies.mark}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    answer = policies.http.post("/api/v1/namespaces/default/pods", pod)
    assert answer.status == 403
    assert (
        "may not mutate atomic arrays, maps or structs: .spec.containers" in answer.tree["message"]
    )


def test_containers_are_merged_by_name(policies: Policies) -> None:
    policies.mutating(
        apply(
            'Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: "side", image: "s"}]}}'
        ),
        apply(
            'Object{spec: Object.spec{containers: [Object.spec.containers{name: "c", '
            'env: [Object.spec.containers.env{name: "A", value: "1"}]}]}}'
        ),
        matchConstraints=policies.constraints(resources=("pods",)),
    )
    pod = {
        "metadata": {"name": f"q-{policies.mark}", "labels": {"mark": policies.mark}},
        "spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]},
    }
    made = policies.http.post("/api/v1/namespaces/default/pods", pod).tree
    assert [container["name"] for container in made["spec"]["initContainers"]] == ["side"]
    assert made["spec"]["containers"][0]["env"] == [{"name": "A", "value": "1"}]
    assert [container["image"] for container in made["spec"]["containers"]] == ["i", "j"]


def test_a_policy_is_reinvoked_when_a_later_one_changes_something(policies: Policies) -> None:
    count = 'Object{data: {"count": string(int(object.data["count"]) + 1)}}'
    policies.mutating(apply(count), name="a", reinvocationPolicy="IfNeeded")
    policies.mutating(apply('Object{data: {"other": "x"}}'), name="b")
    assert policies.create("a", {"count": "0"}).tree["data"] == {"count": "2", "other": "x"}


def test_the_status_has_the_type_errors_of_expressions(policies: Policies, http: Http) -> None:
    policies.validating(
        {"expression": "object.nope == 'x'"}, {"expression": "object.data.size() < 3"}
    )
    path = policies.made[0]

    deadline = time.monotonic() + 60
    found: Json = {}
    while found.get("observedGeneration") != 1 and time.monotonic() < deadline:
        found = http.get(path).tree.get("status") or {}
    (warning,) = found["typeChecking"]["expressionWarnings"]
    assert warning["fieldRef"] == "spec.validations[0].expression"
    assert warning["warning"].startswith(
        "/v1, Kind=ConfigMap: compilation failed: ERROR: <input>:1:7: undefined field 'nope'"
    )


def test_dry_run_is_refused_as_the_real_thing_is(policies: Policies) -> None:
    policies.validating({"expression": "false"})
    tree = config_map(f"dry-{policies.mark}")
    tree["metadata"]["labels"] = {"mark": policies.mark}
    assert policies.http.post(CONFIG_MAPS + "?dryRun=All", tree).status == 422


def test_decisions_are_counted(policies: Policies) -> None:
    policies.validating({"expression": "false"})
    policies.create("a")
    page = policies.http.get("/metrics").body.decode()
    labels = f'enforcement_action="deny",error_type="no_error",policy="vp-{policies.mark}",policy_binding="vpb-{policies.mark}"'
    assert f"apiserver_validating_admission_policy_check_total{{{labels}}} 1" in page
