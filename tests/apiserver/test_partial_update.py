"""Partial updates: an update that keeps the bytes of untouched fields gives the same object as one
that decodes all of it."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import AsyncIterator
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest

from hekla.kube.http.server import Peer, Request, Response
from hekla.local.apiserver.admission.admission import Admission
from hekla.local.apiserver.auth.authentication import Authenticator
from hekla.local.apiserver.auth.tokens import Tokens
from hekla.local.apiserver.objects import builtin
from hekla.local.apiserver.request.server import ApiServer
from hekla.local.apiserver.storage.registry import Registry
from hekla.local.apiserver.storage.store import Store
from hekla.local.apiserver.write import binding, partial_update, status_patch_cache
from hekla.local.apiserver.write.partial_update import PartialUpdate
from hekla.local.machine import certificates

PODS = "/api/v1/namespaces/{}/pods"
THINGS = "/apis/example.com/v1/namespaces/{}/things"
MERGE, STRATEGIC, JSON = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json",
)


class InProcessServer:
    """A whole API server in this process, without its listeners."""

    def __init__(self, directory: Path) -> None:
        self.store = Store(directory / "data")
        self.store.start()
        certificates.ensure(directory / "pki")
        registry = Registry(self.store, builtin.kinds())
        tokens = Tokens(directory / "pki" / "sa.key", registry)
        self.api = ApiServer(
            self.store, registry, Admission(registry), tokens, Authenticator(tokens, None)
        )

    async def ask(
        self, method: str, target: str, body: Any = None, media: str = JSON, agent: str = "one"
    ) -> tuple[int, Any]:
        path, _, query = target.partition("?")
        headers = {"content-type": media, "user-agent": f"{agent}/1"}
        sent = b"" if body is None else json.dumps(body).encode()
        answer = await self.answer(
            Request(method, path, query, headers, sent, Peer(user_id=os.getuid()))
        )
        return answer.status, json.loads(answer.body)

    async def answer(self, request: Request) -> Response:
        """Of one that is no watch."""
        answer = self.api.handle(request)
        if isawaitable(answer):
            answer = await answer
        assert isinstance(answer, Response)
        return answer


SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {"type": "object", "properties": {
            "size": {"type": "integer", "default": 3}, "names": {"type": "array", "items": {"type": "string"}}}},
        "status": {
            "type": "object",
            "properties": {
                "phase": {"type": "string", "enum": ["Good", "Bad"]},
                "count": {"type": "integer", "minimum": 0, "default": 1},
                "message": {"type": "string"},
                "conditions": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                    "items": {"type": "object", "required": ["type"], "properties": {
                        "type": {"type": "string"}, "status": {"type": "string"}, "deep": {"type": "object", "properties": {
                            "x": {"type": "integer"}}}, "lastTransitionTime": {"type": "string", "format": "date-time"}}},
                },
            },
        },
        "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}  # fmt: skip


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[InProcessServer]:
    made = InProcessServer(tmp_path)
    await made.api.start()
    prepare = partial_update.prepare

    def only_in_short(update: PartialUpdate) -> bool:
        return update.call.route.namespace != "long" and prepare(update)

    monkeypatch.setattr(partial_update, "prepare", only_in_short)
    for namespace in ("long", "short"):
        await made.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    names = {"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {"status": {}},
    }
    definition = {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "names": names,
            "scope": "Namespaced",
            "versions": [version],
        },
    }
    status, answer = await made.ask(
        "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition
    )
    assert status == 201, answer
    yield made
    made.api.stop()
    await made.store.close()


CHANGING = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]*Z"
)
VERSION = re.compile(r'("resourceVersion[^0-9]{2,24})[0-9]+')


def plain(answer: Any, namespace: str) -> str:
    """An answer without what differs between any two objects: identities, times, and the order of
    fields, also where a message quotes an object whole.
    """
    if isinstance(answer, dict) and " is invalid: patch: " in str(answer.get("message")):
        answer = {"code": answer["code"], "message": answer["message"].rpartition('}": ')[2]}
    owners = answer.get("metadata", {}).get("managedFields") if isinstance(answer, dict) else None
    for entry in owners or ():
        # They are in the order of their times, which the twins need not have in common.
        entry.pop("time", None)
    if owners:
        owners.sort(key=lambda entry: json.dumps(entry, sort_keys=True))
    text = VERSION.sub(r"\1*", CHANGING.sub("*", json.dumps(answer, sort_keys=True)))
    return re.sub(rf"\b{namespace}\b", "ns", text)


TYPES = ("Ready", "PodScheduled", "Initialized")


def status_of_pod(dice: random.Random) -> dict[str, Any]:
    conditions = [
        {"type": kind, "status": dice.choice(["True", "False"])}
        for kind in dice.sample(TYPES, dice.randint(0, 3))
    ]
    found: dict[str, Any] = {
        "phase": dice.choice(["Pending", "Running", "Succeeded", "Odd", 7]),
        "conditions": conditions,
    }
    if dice.random() < 0.5:
        found["podIPs"] = [{"ip": f"10.0.0.{dice.randint(1, 3)}"}]
    if dice.random() < 0.2:
        found["unknown"] = {"a": 1}
    if dice.random() < 0.2:
        found["message"] = None
    return found


def status_of_thing(dice: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if dice.random() < 0.7:
        found["phase"] = dice.choice(["Good", "Bad", "Ugly", None])
    if dice.random() < 0.5:
        found["count"] = dice.choice([0, 5, -1, "many", None])
    if dice.random() < 0.6:
        kinds = dice.choices("abc", k=dice.randint(0, 3))
        found["conditions"] = [
            {"type": kind, "status": dice.choice("TF"), "deep": {"x": dice.randint(0, 1), "y": 2}}
            for kind in kinds
        ]
    return found


def metadata(dice: random.Random) -> dict[str, Any]:
    return dice.choice(
        [
            {"labels": {"a": dice.choice("xyz")}},
            {"annotations": {"n": None}},
            {"annotations": {"n": str(dice.randint(0, 2))}},
            {"labels": {"a": "not a value"}},
            {"finalizers": ["example.com/hold"]},
            {"finalizers": []},
            {"resourceVersion": "1"},
            {"name": "other"},
            {"labels": {"b": 3}},
            {"uid": "zz"},
            {"generation": 9},
        ]
    )


def patch_of(dice: random.Random, status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if dice.random() < 0.8:
        found["status"] = status
    if dice.random() < 0.35:
        found["metadata"] = metadata(dice)
    if dice.random() < 0.15:
        found["extra"] = {"k": dice.randint(0, 3)}
    return found


async def both(
    server: InProcessServer, method: str, target: str, body: Any, media: str, agent: str
) -> int:
    """The same request about the twins; shows that they stay twins."""
    answers = []
    for namespace in ("long", "short"):
        code, answer = await server.ask(method, target.format(namespace), body, media, agent)
        shown = await server.ask(
            "GET", target.format(namespace).partition("/status")[0].partition("?")[0]
        )
        answers.append((code, plain(answer, namespace), plain(shown[1], namespace)))
    assert answers[0] == answers[1], (method, target, body)
    return answers[0][0]


@pytest.mark.parametrize("seed", range(4))
async def test_partial_and_full_updates_give_equal_objects(
    server: InProcessServer, seed: int
) -> None:
    dice = random.Random(seed)
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
    for namespace in ("long", "short"):
        pod = {"metadata": {"name": "p", "labels": {"a": "x"}}, "spec": {"containers": [container]}}
        code, answer = await server.ask("POST", PODS.format(namespace), pod)
        assert code == 201, answer
        spec = answer["spec"]
        thing = {
            "apiVersion": "example.com/v1",
            "kind": "Thing",
            "metadata": {"name": "t"},
            "spec": {"names": ["a"]},
            "extra": {"z": [1]},
        }
        code, answer = await server.ask("POST", THINGS.format(namespace), thing)
        assert code == 201, answer
    # The name of the token's volume is drawn at random: make the twins equal.
    row = server.api.registry["pods"].collection.newest("long/p")
    twin = server.api.registry["pods"].collection.newest("short/p")
    assert row is not None and twin is not None
    twin.data = json.dumps(
        {**twin.tree(), "spec": row.tree()["spec"]}, separators=(",", ":")
    ).encode()
    assert spec
    good = 0
    for _ in range(80):
        agent = dice.choice(["one", "two"])
        query = dice.choice(["", "", "", "?fieldValidation=Strict", "?dryRun=All"])
        endpoint = dice.choice(["", "/status", "/status"])
        if dice.random() < 0.5:
            patch = patch_of(dice, status_of_pod(dice))
            code = await both(
                server,
                "PATCH",
                f"{PODS}/p{endpoint}{query}",
                patch,
                dice.choice([MERGE, STRATEGIC]),
                agent,
            )
        elif dice.random() < 0.7:
            patch = patch_of(dice, status_of_thing(dice))
            code = await both(server, "PATCH", f"{THINGS}/t{endpoint}{query}", patch, MERGE, agent)
        else:
            code = await put_status(server, dice, agent)
        good += code == 200
    assert good > 20


async def put_status(server: InProcessServer, dice: random.Random, agent: str) -> int:
    answers = []
    status, meta = status_of_thing(dice), dice.choice([{}, {"labels": {"q": "1"}}])
    for namespace in ("long", "short"):
        thing = (await server.ask("GET", f"{THINGS.format(namespace)}/t"))[1]
        body = {
            **thing,
            "status": status,
            "spec": {"names": ["ignored"], "size": 8},
            "metadata": {**thing["metadata"], **meta},
        }
        code, answer = await server.ask(
            "PUT", f"{THINGS.format(namespace)}/t/status", body, JSON, agent
        )
        answers.append((code, plain(answer, namespace)))
    assert answers[0] == answers[1], status
    return answers[0][0]


async def test_a_status_patch_does_without_the_other_stages(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "pause"}]}}
    await server.ask("POST", PODS.format("short"), pod)
    monkeypatch.setattr(status_patch_cache, "run_update", None)

    code, answer = await server.ask(
        "PATCH", f"{PODS.format('short')}/p/status", {"status": {"phase": "Running"}}, MERGE
    )

    assert (
        code == 200
        and answer["status"]["phase"] == "Running"
        and answer["spec"]["containers"][0]["name"] == "main"
    )
    collection = server.api.registry["pods"].collection
    row = collection.newest("short/p")
    assert row is not None and row.fields[collection.positions["status.phase"]] == "Running"


@pytest.mark.parametrize("brings", [{}, {"labels": {"a": "b"}, "annotations": {"n": "1"}}])
async def test_a_bound_pod_is_the_same_either_way(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch, brings: dict[str, Any]
) -> None:
    collection = server.api.registry["pods"].collection
    await server.ask("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
    spec = {
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "pause"}],
    }
    trees = []
    for name in ("quick", "slow"):
        if name == "slow":
            monkeypatch.setattr(binding, "can_be_extended", lambda spec: False)
        await server.ask("POST", PODS.format("short"), {"metadata": {"name": name}, "spec": spec})
        body = {"metadata": {"name": name, **brings}, "target": {"kind": "Node", "name": "n1"}}
        code, answer = await server.ask("POST", f"{PODS.format('short')}/{name}/binding", body)
        assert code == 201, answer
        row = collection.newest(f"short/{name}")
        assert row is not None and row.fields[collection.positions["spec.nodeName"]] == "n1"
        trees.append((plain(row.tree(), name), row.fields, row.labels))
    assert trees[0] == trees[1]


async def test_pods_that_cannot_be_bound_say_so(server: InProcessServer) -> None:
    container = {"name": "main", "image": "pause"}
    gated = {
        "metadata": {"name": "gated"},
        "spec": {"containers": [container], "schedulingGates": [{"name": "example.com/wait"}]},
    }
    await server.ask("POST", PODS.format("short"), gated)
    await server.ask(
        "POST",
        PODS.format("short"),
        {"metadata": {"name": "twice"}, "spec": {"containers": [container]}},
    )
    codes = []
    for name in ("gated", "twice", "twice"):
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
        codes.append((await server.ask("POST", f"{PODS.format('short')}/{name}/binding", body))[0])
    assert codes == [409, 201, 409]


async def test_metadata_that_a_patch_changes_is_read_and_what_names_the_object_is_not(
    server: InProcessServer,
) -> None:
    container = {"name": "main", "image": "pause"}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u", "controller": True}
    pod = {
        "metadata": {"name": "p", "ownerReferences": [owner]},
        "spec": {"containers": [container]},
    }
    code, made = await server.ask("POST", PODS.format("short"), pod)
    assert code == 201, made
    uid = made["metadata"]["uid"]
    status = {"phase": "Running"}

    async def patched(metadata: Any, endpoint: str = "") -> int:
        code, _ = await server.ask(
            "PATCH",
            f"{PODS.format('short')}/p{endpoint}",
            {"metadata": metadata, "status": status},
            MERGE,
        )
        return code

    assert await patched({"uid": uid}, "/status") == 200
    assert await patched({"uid": "another"}, "/status") == 422
    # 1 is true for Python alone.
    assert await patched({"ownerReferences": [{**owner, "controller": 1}]}) == 422
    assert await patched({"uid": uid, "labels": {"a": 1}}) == 422
