"""The status-patch cache: a cached patch gives the same object as a full one, and so does a patch
that keeps metadata as bytes."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest

from hekla.api.trees import Json
from hekla.local.apiserver.objects.texts import OF_POD, of_schema
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.storage.rows import Row
from hekla.local.apiserver.write import partial_update
from hekla.local.apiserver.write.status_patch_cache import StatusPatch, StatusPatchCache
from tests.apiserver.test_partial_update import (
    MERGE,
    PODS,
    SCHEMA,
    STRATEGIC,
    THINGS,
    InProcessServer,
    plain,
    server,
    status_of_pod,
    status_of_thing,
)

__all__ = ["server"]

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


class Clock:
    """The clock of owners, which stands still while both twins are written to."""

    def __init__(self) -> None:
        self.second = 1

    def now(self) -> tuple[int, bytes]:
        return self.second, struct.pack("<I", self.second)


class Twins:
    """Objects of one name in two namespaces, of which one always goes the long way."""

    def __init__(self, server: InProcessServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self.clock = Clock()
        monkeypatch.setattr(server.store.managed_fields, "_clock", self.clock)
        find = StatusPatchCache.find

        def found(cache: StatusPatchCache, call: Call, media: str) -> StatusPatch | None:
            return None if call.route.namespace == "long" else find(cache, call, media)

        monkeypatch.setattr(StatusPatchCache, "find", found)

    @property
    def repeated(self) -> int:
        """How many patches had a cached result."""
        return self.server.api.writer.status_patch_cache.hits

    def row(self, target: str, namespace: str) -> Row | None:
        collection = "pods" if target.startswith("/api/") else "things.example.com"
        return self.server.store.collections[collection].newest(
            f"{namespace}/{target.partition('?')[0].split('/')[-1]}"
        )

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        media: str = "application/json",
        endpoint: str = "",
        agent: str = "one",
    ) -> int:
        """The same request about both, which stay twins; `body` may be a function of what is
        stored."""
        answers, booked = [], []
        for namespace in ("long", "short"):
            where = target.format(namespace)
            sent = body(self.row(where, namespace)) if callable(body) else body
            path, question, query = where.partition("?")
            code, answer = await self.server.ask(
                method, f"{path}{endpoint}{question}{query}", sent, media, agent
            )
            row = self.row(where, namespace)
            answers.append(
                (
                    code,
                    plain(answer, namespace),
                    plain(json.loads(row.whole()), namespace) if row is not None else "",
                )
            )
            if row is not None:
                self.is_sound(where, row)
                booked.append(
                    (
                        row.owners,
                        row.owners.times.unpack_from(row.stamps) if row.owners is not None else (),
                    )
                )
        assert answers[0] == answers[1], (method, target, endpoint, body)
        assert booked[:1] == booked[1:]
        return answers[0][0]

    def is_sound(self, target: str, row: Row) -> None:
        """What a row has beside its bytes is what they say."""
        collection = self.server.store.collections[
            "pods" if target.startswith("/api/") else "things.example.com"
        ]
        tree = row.tree()
        metadata = tree["metadata"]
        assert next(iter(tree)) == "metadata" and metadata["resourceVersion"] == str(row.version)
        assert (row.uid, row.labels, row.fields) == (
            metadata["uid"],
            metadata.get("labels") or {},
            collection.fields_of(tree),
        )


def of_metadata(dice: random.Random) -> Any:
    """What a patch says of metadata, as a function of the object's row: mostly whose it is."""
    return dice.choice(
        [
            lambda row: {"uid": row.uid},
            lambda row: {"uid": row.uid},
            lambda row: {"name": row.name},
            lambda row: {},
            lambda row: None,
            lambda row: {"name": row.name, "namespace": row.namespace, "uid": row.uid},
            lambda row: {"uid": "another"},
            lambda row: {"name": "another"},
            lambda row: {"uid": row.uid, "labels": {"a": "y"}},
            lambda row: {"version": "1"},
            lambda row: {"resourceVersion": str(row.version)},
            lambda row: {"uid": 3},
            lambda row: 5,
            lambda row: {"key": "ns/p"},
        ]
    )


def upset(dice: random.Random, store_version: int) -> Json:
    """A change of metadata before the next status patch."""
    return dice.choice(
        [
            {"labels": {"a": dice.choice("xyz")}},
            {"annotations": {"n": "{}"}},
            {"annotations": None},
            {"labels": None},
            {"annotations": {"resourceVersion": str(store_version + dice.randint(1, 2))}},
            {
                "annotations": {
                    "said": json.dumps(
                        {"resourceVersion": str(store_version + 1), "deletionTimestamp": "x"}
                    )
                }
            },
            {"finalizers": ["example.com/hold"]},
            {"finalizers": None},
        ]
    )


@pytest.mark.parametrize("seed", range(4))
async def test_status_patches_give_the_same_with_and_without_decoding_metadata(
    server: InProcessServer, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    twins = Twins(server, monkeypatch)
    alone = 0
    may_stay_bytes = partial_update.may_stay_bytes

    def counted(metadata: bytes, version: int) -> bool:
        nonlocal alone
        answer = may_stay_bytes(metadata, version)
        alone += answer
        return answer

    monkeypatch.setattr(partial_update, "may_stay_bytes", counted)
    spec = {
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "pause"}],
    }
    pod = {"metadata": {"name": "p", "labels": {}, "annotations": {}}, "spec": spec}
    thing = {
        "apiVersion": "example.com/v1",
        "kind": "Thing",
        "metadata": {"name": "t", "labels": {}, "finalizers": []},
        "spec": {},
    }
    for step in range(70):
        await twins.ask("POST", PODS, pod)
        await twins.ask("POST", THINGS, thing)
        where, status = dice.choice(
            [(f"{PODS}/p", status_of_pod), (f"{THINGS}/t", status_of_thing)]
        )
        if dice.random() < 0.25:
            await twins.ask("PATCH", where, {"metadata": upset(dice, server.store.version)}, MERGE)
        if dice.random() < 0.05:
            await twins.ask("DELETE", f"{where}?gracePeriodSeconds={dice.choice('05')}")
        if step % 20 == 10:
            await judged(server, dice.choice(["x", "y"]))
        said = of_metadata(dice)
        stated: Json = {"status": status(dice)}
        if dice.random() < 0.15:
            stated |= dice.choice(
                [
                    {"extra": {"k": 1}},
                    {"kind": "Thing"},
                    {"kind": "Pod", "apiVersion": "v1"},
                    {"kind": None},
                ]
            )

        def patch(row: Row | None, said: Any = said, stated: Json = stated) -> Json:
            return {"metadata": said(row), **stated} if row is not None else stated

        media = MERGE if where.startswith("/apis") else dice.choice([MERGE, STRATEGIC])
        query = dice.choice(["", "", "", "?fieldValidation=Strict", "?dryRun=All"])
        await twins.ask(
            "PATCH", where + query, patch, media, dice.choice(["", "/status", "/status", "/status"])
        )
    assert alone > 5


async def judged(server: InProcessServer, label: str) -> None:
    """From now on a policy looks at the status of what has a label, and no longer at that of
    others."""
    rule = {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["pods/status", "things/status", "things"],
    }
    policy = {
        "matchConstraints": {
            "resourceRules": [rule],
            "objectSelector": {"matchLabels": {"a": label}},
        },
        "validations": [
            {"expression": "object.metadata.name == '' || object.status.phase != 'Running'"}
        ],
        "failurePolicy": "Fail",
    }
    binding = {"policyName": "judge", "validationActions": ["Deny"]}
    await server.ask("DELETE", f"{BINDINGS}/judge")
    await server.ask("DELETE", f"{POLICIES}/judge")
    for path, made in ((POLICIES, policy), (BINDINGS, binding)):
        code, answer = await server.ask("POST", path, {"metadata": {"name": "judge"}, "spec": made})
        assert code == 201, answer


async def test_metadata_with_its_version_twice_takes_the_full_path(server: InProcessServer) -> None:
    pods = PODS.format("short")
    spec = {
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "pause"}],
    }
    version = server.store.version + 1
    pod = {
        "metadata": {"name": "p", "annotations": {"resourceVersion": str(version)}},
        "spec": spec,
    }
    code, made = await server.ask("POST", pods, pod)
    assert code == 201 and made["metadata"]["resourceVersion"] == str(version)

    code, stated = await server.ask(
        "PATCH", f"{pods}/p/status", {"status": {"phase": "Running"}}, MERGE
    )

    assert code == 200 and stated["metadata"]["annotations"] == {"resourceVersion": str(version)}
    assert stated["metadata"]["resourceVersion"] == str(version + 1)


TIMES = (
    "2026-11-22T14:16:27Z",
    "2026-11-22T14:16:28Z",
    "2026-12-31T00:00:00Z",
    "2026-02-30T00:00:00Z",
    "2026-11-22T14:16:27.5Z",
    "",
)
ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "01.2.3.4", "10.0.0.256", "fd00::1", "")
WORDS = (
    "so",
    "or so",
    "10.0.0.1",
    TIMES[0],
    'in "quotes"',
    "in\n lines",
    "\u00e4",
    "",
    "Running",
    None,
    5,
)


def drawn(dice: random.Random, texts: tuple[Any, ...], usual: int) -> Any:
    """Mostly the same of the usual texts, as most statuses have equal texts in the same places; now
    and then any."""
    chance = dice.random()
    return (
        texts[0]
        if chance < 0.8
        else dice.choice(texts[:usual])
        if chance < 0.97
        else dice.choice(texts)
    )


def said_of_pod(shape: random.Random, dice: random.Random) -> Json:
    """A status of a pod of some shape, with texts of its own."""
    moment, address, words = (
        drawn(dice, texts, usual) for texts, usual in ((TIMES, 3), (ADDRESSES, 3), (WORDS, 4))
    )
    condition = {
        "lastProbeTime": None,
        "lastTransitionTime": moment,
        "status": shape.choice(["True", "False"]),
    }
    container = {"name": "main", "image": "pause", "imageID": "", "ready": True, "restartCount": 0}
    return shape.choice(
        [
            {
                "phase": "Running",
                "hostIP": drawn(dice, ADDRESSES, 2),
                "podIP": address,
                "podIPs": [{"ip": address}],
                "startTime": moment,
            },
            {"podIPs": [{"ip": address}, {"ip": drawn(dice, ADDRESSES, 2)}], "podIP": address},
            {
                "conditions": [
                    condition | {"type": "Ready"},
                    condition | {"type": "Initialized", "message": words},
                ]
            },
            {
                "conditions": [
                    condition | {"type": "Ready", "lastTransitionTime": drawn(dice, TIMES, 2)}
                ],
                "message": words,
            },
            {
                "containerStatuses": [
                    container
                    | {"state": {"running": {"startedAt": moment}}, "containerID": f"c://{words}"}
                ]
            },
            {
                "phase": shape.choice(["Failed", "Succeeded", "Running"]),
                "message": words,
                "reason": "Why",
            },
            {"conditions": [{"type": "Ready", "$patch": "delete"}], "message": None},
        ]
    )


def said_of_thing(shape: random.Random, dice: random.Random) -> Json:
    moment, words = drawn(dice, TIMES, 3), drawn(dice, WORDS, 4)
    condition = {"type": shape.choice("ab"), "status": "T", "lastTransitionTime": moment}
    return shape.choice(
        [
            {"phase": "Good", "message": words, "conditions": [condition]},
            {"message": words},
            {"conditions": [condition]},
            {"phase": shape.choice(["Good", "Ugly"]), "count": 3, "message": None},
            {"unknown": {"message": words}, "message": "so"},
        ]
    )


@pytest.mark.parametrize("seed", range(6))
async def test_cached_status_patches_give_what_full_ones_give(
    server: InProcessServer, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    twins = Twins(server, monkeypatch)
    spec = {
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "pause"}],
    }
    # A key that an address may equal.
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "c",
        "uid": "10.0.0.1",
    }
    for turn in range(45):
        target, kind, said = [
            (PODS, "Pod", said_of_pod),
            (PODS, "Pod", said_of_pod),
            (THINGS, "Thing", said_of_thing),
        ][turn % 3]
        metadata = {"name": f"x{turn}", **({"ownerReferences": [owner]} if turn % 15 < 6 else {})}
        await twins.ask(
            "POST",
            target,
            {"kind": kind, "metadata": metadata, "spec": spec if kind == "Pod" else {}},
        )
        if turn == 40:
            await judged(server, "x")
        # What is said of every third object differs by its texts.
        shape = random.Random(seed + turn % 3)
        for _ in range(5):
            twins.clock.second += dice.randint(0, 1)
            status, agent = said(shape, dice), shape.choice(["one", "one", "two"])
            media = MERGE if kind == "Thing" else shape.choice([STRATEGIC, STRATEGIC, MERGE])
            if media == MERGE:
                status = json.loads(json.dumps(status).replace("$patch", "reason"))
            body = {"metadata": {"name": f"x{turn}"}, "status": status}
            endpoint = "/status" if kind == "Pod" or shape.random() < 0.8 else ""
            await twins.ask("PATCH", f"{target}/x{turn}", body, media, endpoint, agent)
    assert twins.repeated > 10


def said_again(number: int) -> tuple[Json, Json]:
    """A status of a pod and a later one, of which what is said depends on the languages that
    patches are in."""
    first, then = (
        {"type": kind, "status": "True", "message": f"{kind} {number}"}
        for kind in ("Ready", "Initialized")
    )
    return {"conditions": [first]}, {
        "conditions": [then],
        "podIP": "fd00::1",
        "podIPs": [{"ip": "fd00::1"}, {"ip": f"10.0.0.{number}"}],
    }


@pytest.mark.parametrize("then", [MERGE, STRATEGIC])
async def test_a_cached_status_patch_is_of_its_media_type_and_gives_way_to_policies(
    server: InProcessServer, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    twins = Twins(server, monkeypatch)
    spec = {
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "pause"}],
    }
    codes = []
    for number in range(6):
        await twins.ask(
            "POST", PODS, {"metadata": {"name": f"p{number}", "labels": {"a": "x"}}, "spec": spec}
        )
        if number == 5:
            await judged(server, "x")
        for status in (*said_again(number), {"phase": "Running"}):
            twins.clock.second += 1
            media = then if number > 3 and "podIP" in status else STRATEGIC
            codes.append(
                await twins.ask("PATCH", f"{PODS}/p{number}", {"status": status}, media, "/status")
            )
    assert codes == [200] * 17 + [422]
    assert twins.repeated > 3


def test_a_schema_that_restricts_a_text() -> None:
    schema: Json = SCHEMA
    status = schema["properties"]["status"]
    assert of_schema(status) is not None
    for more in (
        {"message": {"type": "string", "maxLength": 5}},
        {"message": {"type": "integer"}},
        {
            "deep": {
                "items": {"properties": {"lastTransitionTime": {"type": "string", "pattern": "^2"}}}
            }
        },
    ):
        assert of_schema({**status, "properties": {**status["properties"], **more}}) is None
    assert of_schema({"type": "array", "x-kubernetes-list-map-keys": ["message"]}) is None
    assert of_schema(None) is None


def test_texts_are_found_where_they_stand_as_what_they_are() -> None:
    found = OF_POD.split(
        b'{"ip":"1.2.3.4","message":"a\\"ip\\":\\"1.2.3.4","a\\"ip":"1.2.3.4","startTime":"2026-02-29T00:00:00Z","message":""}'
    )
    assert found[2::3] == [b"1.2.3.4"]
