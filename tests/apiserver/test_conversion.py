"""Definitions whose versions a webhook converts (local-cluster 4.5): a real one, over HTTPS."""

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
from tests.apiserver.http import MERGE, Answer, Http
from tests.apiserver_process import ApiServerProcess

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TEXT = {"type": "string"}


class Converter:
    """Keeps `spec.address` (`host:port`) of v1 and `spec.host`, `spec.port` of v2 as two forms of
    one."""

    def __init__(self, pki: Path) -> None:
        self.pki = pki
        self.asked: list[Json] = []
        self.fails = ""
        self.spoil: Callable[[Json], Json] = lambda tree: tree
        self.server: Server

    async def start(self) -> None:
        certificates.ensure(self.pki)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pki / "admission.crt", self.pki / "admission.key")
        self.server = await serve(self.handle, ssl=context)

    async def handle(self, request: Request) -> Response:
        review = json.loads(request.body)
        assert (
            review["kind"] == "ConversionReview"
            and review["apiVersion"] == "apiextensions.k8s.io/v1"
        )
        asked = review["request"]
        self.asked.append(asked)
        response: Json = {"uid": asked["uid"], "result": {"status": "Success"}}
        if self.fails:
            response["result"] = {"status": "Failure", "message": self.fails}
        else:
            wanted = asked["desiredAPIVersion"]
            response["convertedObjects"] = [
                self.spoil(self.converted(tree, wanted)) for tree in asked["objects"]
            ]
        answer = {
            "kind": "ConversionReview",
            "apiVersion": "apiextensions.k8s.io/v1",
            "response": response,
        }
        return Response(200, json.dumps(answer).encode())

    @staticmethod
    def converted(tree: Json, wanted: str) -> Json:
        spec = dict(tree.get("spec") or {})
        if wanted.endswith("/v2") and "address" in spec:
            spec["host"], _, spec["port"] = spec.pop("address").partition(":")
        elif wanted.endswith("/v1") and "host" in spec:
            spec["address"] = f"{spec.pop('host')}:{spec.pop('port')}"
        return {**tree, "apiVersion": wanted, "spec": spec}


class Story:
    """A definition `doors.<group>` and requests about its objects; in a thread, so that the
    webhook's loop is free to answer."""

    def __init__(self, http: Http, converter: Converter, group: str) -> None:
        self.http = http
        self.converter = converter
        self.group = group

    async def __call__(self, method: str, *arguments: Any) -> Answer:
        call: Callable[..., Answer] = getattr(self.http, method)
        return await asyncio.to_thread(call, *arguments)

    def path(self, version: str, name: str = "") -> str:
        return f"/apis/{self.group}/{version}/namespaces/default/doors" + (
            f"/{name}" if name else ""
        )

    def door(self, version: str, name: str, **spec: Any) -> Json:
        return {
            "apiVersion": f"{self.group}/{version}",
            "kind": "Door",
            "metadata": {"name": name},
            "spec": spec,
        }

    def definition(self, storage: str) -> Json:
        bundle = base64.b64encode((self.converter.pki / "ca.crt").read_bytes()).decode()
        config = {
            "url": f"https://127.0.0.1:{self.converter.server.port}/convert",
            "caBundle": bundle,
        }
        fields = {
            "v1": {"address": TEXT},
            "v2": {"host": TEXT, "port": TEXT, "open": {"type": "boolean", "default": True}},
        }
        versions = [
            {
                "name": name,
                "served": True,
                "storage": name == storage,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": known},
                            "status": {
                                "type": "object",
                                "properties": {"seen": {"type": "integer"}},
                            },
                        },
                    }
                },
            }
            for name, known in fields.items()
        ]
        return {
            "metadata": {"name": f"doors.{self.group}"},
            "spec": {
                "group": self.group,
                "names": {"plural": "doors", "kind": "Door"},
                "scope": "Namespaced",
                "versions": versions,
                "conversion": {
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]},
                },
            },
        }

    async def install(self, storage: str = "v1") -> None:
        answer = await self("post", DEFINITIONS, self.definition(storage))
        assert answer.status == 201, answer

    async def store_as(self, storage: str) -> None:
        versions = self.definition(storage)["spec"]["versions"]
        answer = await self(
            "patch", f"{DEFINITIONS}/doors.{self.group}", {"spec": {"versions": versions}}
        )
        assert answer.status == 200, answer


@pytest.fixture
async def converter(tmp_path: Path) -> AsyncIterator[Converter]:
    made = Converter(tmp_path / "hooks")
    await made.start()
    yield made
    await made.server.close(0)


@pytest.fixture
def story(
    converter: Converter, shared_apiserver: ApiServerProcess, request: pytest.FixtureRequest
) -> Story:
    group = (
        f"{request.node.name.removeprefix('test_').replace('_', '-')[:40].strip('-')}.example.com"
    )
    return Story(Http(shared_apiserver), converter, group)


async def test_each_version_is_served_as_requested(story: Story) -> None:
    await story.install()

    made = await story("post", story.path("v2"), story.door("v2", "a", host="here", port="80"))

    assert made.status == 201 and made.tree["spec"] == {
        "host": "here",
        "port": "80",
        "open": True,
    }, made
    assert story.converter.asked[0]["desiredAPIVersion"].endswith("/v1")
    first = (await story("get", story.path("v1", "a"))).tree
    assert first["apiVersion"] == f"{story.group}/v1" and first["spec"] == {"address": "here:80"}
    assert first["metadata"]["uid"] == made.tree["metadata"]["uid"]
    await story("post", story.path("v1"), story.door("v1", "b", address="there:81"))
    listed = (await story("get", story.path("v2"))).tree
    assert [
        (item["kind"], item["apiVersion"], item["spec"]["host"]) for item in listed["items"]
    ] == [("Door", f"{story.group}/v2", "here"), ("Door", f"{story.group}/v2", "there")]
    asked = len(story.converter.asked)
    await story("get", story.path("v2"))
    assert len(story.converter.asked) == asked, "what was converted once is known"


async def test_writes_go_through_the_version_of_their_url(story: Story) -> None:
    await story.install()
    await story("post", story.path("v1"), story.door("v1", "a", address="here:80"))

    patched = await story("patch", story.path("v2", "a"), {"spec": {"port": "443"}}, MERGE)
    assert patched.status == 200 and patched.tree["spec"]["port"] == "443", patched
    status = await story("patch", story.path("v2", "a") + "/status", {"status": {"seen": 3}}, MERGE)
    assert status.status == 200, status
    first = (await story("get", story.path("v1", "a"))).tree
    assert (
        first["spec"] == {"address": "here:443"}
        and first["status"] == {"seen": 3}
        and first["metadata"]["generation"] == 2
    )

    first["spec"]["address"] = "gone:1"
    assert (await story("put", story.path("v1", "a"), first)).tree["spec"] == {"address": "gone:1"}
    assert (
        await story(
            "put", story.path("v2", "a"), {**story.door("v2", "a"), "metadata": first["metadata"]}
        )
    ).status == 409
    assert (await story("delete", story.path("v2", "a"))).status == 200
    assert (await story("get", story.path("v1", "a"))).status == 404


async def test_watchers_see_their_version(story: Story) -> None:
    await story.install()
    await story("post", story.path("v1"), story.door("v1", "a", address="here:80"))

    def watch() -> list[Any]:
        with story.http.watch(story.path("v2") + "?watch=1") as watched:
            began = watched.next()
            Http(story.http.server).patch(story.path("v1", "a"), {"spec": {"address": "other:81"}})
            changed = watched.next()
            Http(story.http.server).delete(story.path("v1", "a"))
            return [began, changed, watched.next()]

    events = await asyncio.to_thread(watch)

    assert [
        (event["type"], event["object"]["apiVersion"][-2:], event["object"]["spec"]["host"])
        for event in events
    ] == [("ADDED", "v2", "here"), ("MODIFIED", "v2", "other"), ("DELETED", "v2", "other")]


async def test_a_write_stores_in_the_storage_version_of_now(story: Story) -> None:
    await story.install("v1")
    await story("post", story.path("v1"), story.door("v1", "old", address="here:80"))
    await story.store_as("v2")
    asked = story.converter.asked
    asked.clear()

    assert (await story("get", story.path("v1", "old"))).tree["spec"] == {"address": "here:80"}
    assert not asked, "it still lies in v1"
    assert (
        await story("patch", story.path("v1", "old"), {"metadata": {"labels": {"a": "b"}}}, MERGE)
    ).status == 200
    asked.clear()
    assert (await story("get", story.path("v2", "old"))).tree["spec"]["host"] == "here"
    assert not asked, "now it lies in v2"
    definition = (await story("get", f"{DEFINITIONS}/doors.{story.group}")).tree
    assert definition["status"]["storedVersions"] == ["v1", "v2"]


async def test_failed_conversions_have_the_messages_of_kubernetes(story: Story) -> None:
    await story.install()
    await story("post", story.path("v1"), story.door("v1", "a", address="here:80"))
    kind = f"conversion webhook for {story.group}/v1, Kind=Door"

    story.converter.fails = "out of order"
    refused = await story("get", story.path("v2", "a"))
    assert refused.status == 500 and refused.message == f"{kind} failed: out of order"
    assert (await story("get", story.path("v1", "a"))).status == 200

    story.converter.fails = ""
    story.converter.spoil = lambda tree: {**tree, "metadata": {**tree["metadata"], "name": "b"}}
    refused = await story("get", story.path("v2", "a"))
    assert (
        refused.message
        == f"{kind} returned invalid converted object at index 0: must have the same name: a != b"
    )

    story.converter.spoil = lambda tree: {**tree, "apiVersion": "v7"}
    assert "invalid groupVersion (expected" in (await story("get", story.path("v2"))).message

    await story.converter.server.close(0)
    refused = await story("get", story.path("v2", "a"))
    assert refused.status == 500 and refused.message.startswith(
        f'{kind} failed: Post "https://127.0.0.1:'
    ), refused
    assert "connection refused" in refused.message


async def test_an_admission_webhook_sees_the_version_that_it_knows(story: Story) -> None:
    await story.install()
    seen: list[Json] = []

    async def admit(request: Request) -> Response:
        review = json.loads(request.body)
        seen.append(review["request"])
        change = [{"op": "replace", "path": "/spec/address", "value": "set:9"}]
        response = {
            "uid": review["request"]["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(change).encode()).decode(),
        }
        return Response(
            200,
            json.dumps(
                {
                    "kind": "AdmissionReview",
                    "apiVersion": "admission.k8s.io/v1",
                    "response": response,
                }
            ).encode(),
        )

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(
        story.converter.pki / "admission.crt", story.converter.pki / "admission.key"
    )
    server = await serve(admit, ssl=context)
    bundle = base64.b64encode((story.converter.pki / "ca.crt").read_bytes()).decode()
    rules = [
        {
            "operations": ["CREATE"],
            "apiGroups": [story.group],
            "apiVersions": ["v1"],
            "resources": ["doors"],
        }
    ]
    hook = {
        "name": "doors.example.com",
        "clientConfig": {"url": f"https://127.0.0.1:{server.port}/", "caBundle": bundle},
        "rules": rules,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    await story("post", path, {"metadata": {"name": "doors"}, "webhooks": [hook]})

    made = await story("post", story.path("v2"), story.door("v2", "a", host="here", port="80"))

    await story("delete", f"{path}/doors")
    await server.close(0)
    assert made.status == 201 and (made.tree["spec"]["host"], made.tree["spec"]["port"]) == (
        "set",
        "9",
    ), made
    assert seen[0]["object"]["apiVersion"] == f"{story.group}/v1" and seen[0]["object"]["spec"] == {
        "address": "here:80"
    }
    assert seen[0]["requestKind"]["version"] == "v2" and seen[0]["kind"]["version"] == "v1"


async def test_a_definition_without_its_webhook_is_refused(story: Story) -> None:
    tree = story.definition("v1")
    tree["spec"]["conversion"] = {"strategy": "Webhook"}
    answer = await story("post", DEFINITIONS, tree)
    assert (
        answer.status == 422
        and "spec.conversion.webhookClientConfig: Required value: required when strategy"
        in answer.message
    )
