"""Admission webhooks: who is asked, what they may do, what the client sees (local-cluster 6)."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hekla.api.trees import Json
from hekla.kube.http.server import Request, Response, Server, serve
from hekla.local.machine import certificates
from tests.apiserver.http import CONFIG_MAPS, PODS, Answer, Http, config_map, pod
from tests.apiserver_process import ApiServerProcess

GROUP = "/apis/admissionregistration.k8s.io/v1"


class Webhook:
    """An HTTPS server whose answer each story sets."""

    def __init__(self, pki: Path) -> None:
        self.pki = pki
        self.seen: list[Json] = []
        self.answer: Callable[[Json], Json] = lambda request: {"allowed": True}
        self.status = 200
        self.delay = 0.0
        self.server: Server

    async def start(self) -> None:
        certificates.ensure(self.pki)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pki / "admission.crt", self.pki / "admission.key")
        self.server = await serve(self.handle, ssl=context)

    async def handle(self, request: Request) -> Response:
        review = json.loads(request.body)
        self.seen.append({**review["request"], "path": request.path, "query": request.query})
        if self.delay:
            await asyncio.sleep(self.delay)
        response = {"uid": review["request"]["uid"], **self.answer(review["request"])}
        return Response(
            self.status,
            json.dumps(
                {
                    "kind": "AdmissionReview",
                    "apiVersion": "admission.k8s.io/v1",
                    "response": response,
                }
            ).encode(),
        )

    def configuration(self, sort: str, name: str, **more: Any) -> Json:
        bundle = base64.b64encode((self.pki / "ca.crt").read_bytes()).decode()
        rules = [
            {
                "operations": ["CREATE"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["configmaps"],
            }
        ]
        hook = {
            "name": f"{name}.ex.com",
            "clientConfig": {
                "url": f"https://127.0.0.1:{self.server.port}/{name}",
                "caBundle": bundle,
            },
            "rules": rules,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }
        return {
            "metadata": {"name": name},
            "kind": f"{sort}WebhookConfiguration",
            "webhooks": [hook],
        }


@pytest.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[Webhook]:
    hook = Webhook(tmp_path / "hooks")
    await hook.start()
    yield hook
    await hook.server.close(0)


@pytest.fixture
async def ask(webhook: Webhook, shared_apiserver: ApiServerProcess) -> AsyncIterator[Ask]:
    asking = Ask(Http(shared_apiserver), webhook)
    yield asking
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        await asyncio.to_thread(asking.http.delete, f"{GROUP}/{plural}")


class Ask:
    """Requests in a thread, so that the webhook's loop is free to answer."""

    def __init__(self, http: Http, webhook: Webhook) -> None:
        self.http = http
        self.webhook = webhook

    async def __call__(self, method: str, *arguments: Any) -> Answer:
        call: Callable[..., Answer] = getattr(self.http, method)
        return await asyncio.to_thread(call, *arguments)

    async def install(self, sort: str, name: str, **more: Any) -> None:
        plural = f"{sort.lower()}webhookconfigurations"
        answer = await self(
            "post", f"{GROUP}/{plural}", self.webhook.configuration(sort, name, **more)
        )
        assert answer.status == 201, answer


def patch(*operations: Json) -> Json:
    return {
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(operations).encode()).decode(),
    }


@pytest.mark.scenario("local-cluster", 107)
async def test_a_mutation_is_stored(ask: Ask) -> None:
    ask.webhook.answer = lambda request: patch(
        {"op": "add", "path": "/data", "value": {"by": "hook"}}
    )
    await ask.install("Mutating", "mutate")
    answer = await ask("post", CONFIG_MAPS, config_map("mutated"))
    assert answer.tree["data"] == {"by": "hook"}
    request = ask.webhook.seen[0]
    assert (request["operation"], request["name"], request["namespace"], request["dryRun"]) == (
        "CREATE",
        "mutated",
        "default",
        False,
    )
    assert request["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert request["object"]["kind"] == "ConfigMap"
    assert request["oldObject"] is None
    assert request["userInfo"]["username"] == "kubernetes-admin"
    assert request["query"] == "timeout=10s"


@pytest.mark.scenario("local-cluster", 107)
async def test_two_mutate_in_order_of_their_names_and_one_again(ask: Ask) -> None:
    def answer(request: Json) -> Json:
        seen = request["object"].get("data", {}).get("seen", "")
        which = {"first": "1", "second": "2"}[str(ask.webhook.seen[-1]["path"]).strip("/")]
        if which in seen:
            return {"allowed": True}
        return patch({"op": "add", "path": "/data", "value": {"seen": seen + which}})

    ask.webhook.answer = answer
    await ask.install("Mutating", "second")
    await ask.install("Mutating", "first", reinvocationPolicy="IfNeeded")
    assert (await ask("post", CONFIG_MAPS, config_map("ordered"))).tree["data"] == {"seen": "12"}
    assert [request["path"] for request in ask.webhook.seen] == ["/first", "/second", "/first"]


async def test_a_patch_that_fails_half_way_leaves_nothing(ask: Ask) -> None:
    operations = (
        {"op": "add", "path": "/data/by", "value": "hook"},
        {"op": "remove", "path": "/nowhere"},
    )
    ask.webhook.answer = lambda request: patch(*operations)
    await ask.install("Mutating", "half", failurePolicy="Ignore")
    answer = await ask("post", CONFIG_MAPS, config_map("whole", data={"a": "1"}))
    assert (answer.status, answer.tree["data"]) == (201, {"a": "1"})


@pytest.mark.scenario("local-cluster", 108)
async def test_refusals_have_messages(ask: Ask) -> None:
    await ask.install("Validating", "v")
    ask.webhook.answer = lambda request: {
        "allowed": False,
        "status": {"code": 403, "reason": "Forbidden", "message": "no way"},
    }
    answer = await ask("post", CONFIG_MAPS, config_map("denied"))
    assert (answer.status, answer.message) == (
        403,
        'admission webhook "v.ex.com" denied the request: no way',
    )
    assert answer.tree["reason"] == "Forbidden"
    assert "details" not in answer.tree
    ask.webhook.answer = lambda request: {"allowed": False}
    answer = await ask("post", CONFIG_MAPS, config_map("denied"))
    assert (answer.status, answer.message) == (
        400,
        'admission webhook "v.ex.com" denied the request without explanation',
    )
    ask.webhook.answer = lambda request: {"allowed": False, "status": {"reason": "Because"}}
    assert (await ask("post", CONFIG_MAPS, config_map("denied"))).message.endswith(
        "denied the request: Because"
    )
    assert (await ask("get", f"{CONFIG_MAPS}/denied")).status == 404


@pytest.mark.scenario("local-cluster", 108)
async def test_an_unreachable_webhook(ask: Ask) -> None:
    config = {"url": "https://127.0.0.1:1/x", "caBundle": ""}
    await ask.install("Validating", "down", clientConfig=config)
    answer = await ask("post", CONFIG_MAPS, config_map("unreachable"))
    assert answer.status == 500
    assert answer.message == (
        'Internal error occurred: failed calling webhook "down.ex.com": failed to call webhook: '
        'Post "https://127.0.0.1:1/x?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused'
    )
    await ask("delete", f"{GROUP}/validatingwebhookconfigurations/down")
    await ask.install("Validating", "down", clientConfig=config, failurePolicy="Ignore")
    assert (await ask("post", CONFIG_MAPS, config_map("unreachable"))).status == 201


async def test_an_untrusted_webhook(ask: Ask, tmp_path: Path) -> None:
    certificates.ensure(tmp_path / "others")
    bundle = base64.b64encode((tmp_path / "others" / "ca.crt").read_bytes()).decode()
    url = f"https://127.0.0.1:{ask.webhook.server.port}/x"
    await ask.install("Validating", "untrusted", clientConfig={"url": url, "caBundle": bundle})
    answer = await ask("post", CONFIG_MAPS, config_map("untrusted"))
    assert answer.status == 500
    assert (
        "tls: failed to verify certificate: x509: certificate signed by unknown authority"
        in answer.message
    )


async def test_slow_failing_and_confused_webhooks(ask: Ask) -> None:
    await ask.install("Validating", "odd", timeoutSeconds=1)
    ask.webhook.delay = 3
    answer = await ask("post", CONFIG_MAPS, config_map("odd"))
    assert answer.message.endswith("context deadline exceeded")
    ask.webhook.delay, ask.webhook.status = 0, 503
    answer = await ask("post", CONFIG_MAPS, config_map("odd"))
    assert answer.message.endswith(
        'an error on the server ("unknown") has prevented the request from succeeding'
    )
    ask.webhook.status = 200
    ask.webhook.answer = lambda request: {"allowed": True, "uid": "zz"}
    answer = await ask("post", CONFIG_MAPS, config_map("odd"))
    assert 'received invalid webhook response: expected response.uid="' in answer.message
    await ask.install("Mutating", "bad")
    ask.webhook.answer = lambda request: patch({"op": "remove", "path": "/nowhere"})
    assert (await ask("post", CONFIG_MAPS, config_map("odd"))).status == 500


@pytest.mark.scenario("local-cluster", 109)
async def test_selectors_and_dry_run(ask: Ask) -> None:
    ask.webhook.answer = lambda request: {"allowed": True, "warnings": ["take care"]}
    await ask.install("Validating", "picky", objectSelector={"matchLabels": {"look": "yes"}})
    assert "warning" not in (await ask("post", CONFIG_MAPS, config_map("unlabelled"))).headers
    answer = await ask(
        "post",
        f"{CONFIG_MAPS}?dryRun=All",
        config_map("labelled", metadata={"labels": {"look": "yes"}}),
    )
    assert answer.headers["warning"] == '299 - "take care"'
    assert [request["dryRun"] for request in ask.webhook.seen] == [True]
    unwanted = {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}
        ]
    }
    await ask.install("Validating", "elsewhere", namespaceSelector=unwanted)
    await ask("post", CONFIG_MAPS, config_map("here"))
    assert len(ask.webhook.seen) == 1


@pytest.mark.scenario("local-cluster", 110)
async def test_webhooks_get_deletions_and_bindings(ask: Ask) -> None:
    rules = [
        {
            "operations": ["*"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": ["configmaps", "pods/binding", "pods/eviction"],
        }
    ]
    await ask.install("Validating", "all", rules=rules)
    await ask("post", CONFIG_MAPS, config_map("shown"))
    await ask("patch", f"{CONFIG_MAPS}/shown", {"data": {"a": "1"}})
    await ask("delete", f"{CONFIG_MAPS}/shown")
    await ask("post", PODS, pod("shown"))
    await ask(
        "post",
        f"{PODS}/shown/binding",
        {"metadata": {"name": "shown"}, "target": {"kind": "Node", "name": "n1"}},
    )
    await ask("post", f"{PODS}/shown/eviction", {"metadata": {"name": "shown"}})
    seen = [(request["operation"], request.get("subResource", "")) for request in ask.webhook.seen]
    assert seen == [
        ("CREATE", ""),
        ("UPDATE", ""),
        ("DELETE", ""),
        ("CREATE", "binding"),
        ("CREATE", "eviction"),
    ]
    update, delete, binding = ask.webhook.seen[1:4]
    assert update["oldObject"].get("data") is None
    assert update["object"]["data"] == {"a": "1"}
    assert delete["object"] is None
    assert delete["oldObject"]["data"] == {"a": "1"}
    assert binding["kind"]["kind"] == "Binding"
    assert binding["object"]["target"]["name"] == "n1"
    ask.webhook.answer = lambda request: {"allowed": False, "status": {"message": "stay"}}
    await ask("post", PODS, pod("stays"))
    assert (
        await ask(
            "post",
            f"{PODS}/stays/binding",
            {"metadata": {"name": "stays"}, "target": {"name": "n1"}},
        )
    ).status == 400
    assert "nodeName" not in (await ask("get", f"{PODS}/stays")).tree["spec"]


@pytest.mark.scenario("local-cluster", 109)
async def test_conditions_choose_the_requests(ask: Ask) -> None:
    def condition(expression: str) -> list[Json]:
        return [{"name": "c", "expression": expression}]

    mine = "object.metadata.name.startsWith('watched') && request.userInfo.groups.exists(g, g == 'system:masters')"
    await ask.install("Validating", "watching", matchConditions=condition(mine))
    await ask("post", CONFIG_MAPS, config_map("unwatched"))
    await ask("post", CONFIG_MAPS, config_map("watched"))
    assert [request["name"] for request in ask.webhook.seen] == ["watched"]
    await ask.install("Validating", "failing", matchConditions=condition("object.data.a == 'x'"))
    answer = await ask("post", CONFIG_MAPS, config_map("undecided"))
    assert answer.status == 403
    assert answer.tree["message"].endswith(
        "expression 'object.data.a == 'x'' resulted in error: no such key: data"
    )


async def test_conditions_are_compiled_when_they_are_stored(ask: Ask) -> None:
    tree = ask.webhook.configuration(
        "Validating", "bad", matchConditions=[{"name": "c", "expression": "object.x +"}]
    )
    answer = await ask("post", f"{GROUP}/validatingwebhookconfigurations", tree)
    assert answer.status == 422
    (cause,) = answer.tree["details"]["causes"]
    assert cause["field"] == "webhooks[0].matchConditions[0].expression"
    assert "compilation failed: ERROR: <input>:1:11: Syntax error" in cause["message"]


async def test_an_object_is_seen_through_another_version_of_its_kind(ask: Ask) -> None:
    names = {"plural": "twins", "singular": "twin", "kind": "Twin", "listKind": "TwinList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema}
        for name in ("v1", "v2")
    ]
    spec = {"group": "ex.com", "scope": "Namespaced", "names": names, "versions": versions}
    definition = {"metadata": {"name": "twins.ex.com"}, "spec": spec}
    await ask("post", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    rules = [
        {
            "operations": ["CREATE"],
            "apiGroups": ["ex.com"],
            "apiVersions": ["v1"],
            "resources": ["twins"],
        }
    ]
    await ask.install("Validating", "equal", rules=rules)
    await ask.install("Validating", "exact", rules=rules, matchPolicy="Exact")
    twin = {"apiVersion": "ex.com/v2", "kind": "Twin", "metadata": {"name": "t"}}
    assert (await ask("post", "/apis/ex.com/v2/namespaces/default/twins", twin)).status == 201
    (request,) = ask.webhook.seen
    assert request["path"] == "/equal"
    assert request["kind"]["version"] == request["resource"]["version"] == "v1"
    assert request["requestKind"]["version"] == request["requestResource"]["version"] == "v2"
    assert request["object"]["apiVersion"] == "ex.com/v1"
    await ask("delete", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/twins.ex.com")


async def test_policies_change_an_object_before_webhooks_see_it(ask: Ask) -> None:
    rule = {
        "operations": ["CREATE"],
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["configmaps"],
    }
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "reinvocationPolicy": "IfNeeded",
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {
                    "expression": 'Object{data: {"keys": string(has(object.data) ? object.data.size() : 0)}}'
                },
            }
        ],
    }
    ask.webhook.answer = lambda request: patch(
        {"op": "add", "path": "/data/hook", "value": request["object"]["data"]["keys"]}
    )
    await ask.install("Mutating", "late")
    try:
        for plural, spec in (("policies", policy), ("policybindings", {"policyName": "early"})):
            answer = await ask(
                "post",
                f"{GROUP}/mutatingadmission{plural}",
                {"metadata": {"name": "early"}, "spec": spec},
            )
            assert answer.status == 201, answer
        made = (await ask("post", CONFIG_MAPS, config_map("both"))).tree
        assert made["data"] == {"hook": "0", "keys": "2"}
    finally:
        for plural in ("policybindings", "policies"):
            await ask("delete", f"{GROUP}/mutatingadmission{plural}/early")


async def test_calls_are_counted(ask: Ask) -> None:
    ask.webhook.answer = lambda request: {"allowed": False, "status": {"code": 418}}
    await ask.install("Validating", "counted")
    name = ask.webhook.configuration("Validating", "counted")["webhooks"][0]["name"]
    await ask("post", CONFIG_MAPS, config_map("refused"))
    page = (await ask("get", "/metrics")).body.decode()
    labels = f'code="418",name="{name}",operation="CREATE",rejected="true",type="validating"'
    assert f"apiserver_admission_webhook_request_total{{{labels}}} 1" in page
    assert f'name="{name}",operation="CREATE",rejection_code="418",type="validating"}} 1' in page
