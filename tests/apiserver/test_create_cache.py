"""The create cache: a cached create gives the same object as a full one."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hekla.admission.in_process import in_process_settings
from hekla.admission.registration import Where, kind_of, webhook
from hekla.admission.registry import ADMISSIONS
from hekla.api import crds
from hekla.api.trees import Json
from hekla.kube.http.server import Peer, Request
from hekla.local.apiserver.admission.in_process import reviewers
from hekla.local.apiserver.objects.expressions import reads_spec_and_annotation_names
from hekla.local.apiserver.request.health import KUBERNETES_MINOR
from hekla.local.apiserver.write.create_cache import CreateCache
from tests.apiserver.test_partial_update import CHANGING, SCHEMA, InProcessServer, plain

URL = "https://127.0.0.1:1"
PODS = "/api/v1/namespaces/{}/pods"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/{}/podgroups"
THINGS = "/apis/example.com/v1/namespaces/{}/things"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
MADE_UP = re.compile(r"(kube-api-access-|made-|Bad_)[a-z0-9]{5}")


class World:
    """A server with our kinds and webhooks, one namespace of which does not use the create cache."""

    def __init__(self, server: InProcessServer) -> None:
        self.server = server
        self.narrow = 0
        """What was upset that keeps many objects off the short way, to be set right next."""

    @property
    def hits(self) -> int:
        return self.server.api.writer.create_cache.hits

    async def ask(
        self,
        method: str,
        target: str,
        body: Any = None,
        media: str = "application/json",
        agent: str = "one",
    ) -> Any:
        return await self.server.ask(method, target, body, media, agent)

    async def must(
        self, method: str, target: str, body: Any = None, media: str = "application/json"
    ) -> Any:
        code, answer = await self.ask(method, target, body, media)
        assert code in (200, 201), answer
        return answer

    async def create(self, target: str, body: bytes, agent: str) -> tuple[int, Any, Any, Any]:
        """(code, answer, warnings, what the audit log is to say)"""
        path, _, query = target.partition("?")
        headers = {"content-type": "application/json", "user-agent": f"{agent}/1"}
        request = Request("POST", path, query, headers, body, Peer(user_id=os.getuid()))
        answer = await self.server.answer(request)
        return (
            answer.status,
            json.loads(answer.body),
            (answer.headers or {}).get("Warning"),
            request.notes,
        )

    async def both(self, target: str, tree: Json, agent: str = "one") -> tuple[int, Any]:
        """The same create in both namespaces; shows that it comes to the same."""
        found = []
        for namespace in ("long", "short"):
            meta = {
                name: namespace if value == "@" else value
                for name, value in tree["metadata"].items()
            }
            body = json.dumps({**tree, "metadata": meta}, separators=(",", ":")).encode()
            code, answer, *said = await self.create(target.format(namespace), body, agent)
            kept: Any = None
            if code == 201 and "generateName" not in meta:
                kept = (
                    await self.ask(
                        "GET", f"{target.format(namespace).partition('?')[0]}/{meta['name']}"
                    )
                )[1]
                assert kept == answer or "?" in target
                # The order of fields is part of it.
                kept = CHANGING.sub(
                    "*",
                    MADE_UP.sub(
                        "made up", json.dumps(plain_order(kept)).replace(f'"{namespace}"', '"ns"')
                    ),
                )
            found.append(
                (
                    code,
                    MADE_UP.sub("made up", plain(answer, namespace)),
                    kept,
                    json.dumps(said).replace(namespace, "ns"),
                )
            )
        assert found[0] == found[1], (target, tree)
        return code, answer


def plain_order(tree: Any) -> Any:
    """An object without what differs between any two, its fields as they stand."""
    metadata = {
        name: "*" if name in ("uid", "creationTimestamp", "resourceVersion") else value
        for name, value in tree["metadata"].items()
    }
    metadata.pop("managedFields", None)
    return {**tree, "metadata": metadata}


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    server = InProcessServer(tmp_path)
    api = server.api
    api.webhooks.in_process = reviewers(
        api.registry, f"{URL}=hekla.admission.in_process:reviewers", int(KUBERNETES_MINOR)
    )
    await api.start()
    made = World(server)
    find = CreateCache.find

    def found(self: CreateCache, call: Any) -> Any:
        if call.route.namespace == "long":
            return None
        return find(self, call)

    monkeypatch.setattr(CreateCache, "find", found)
    names: Json = {
        "plural": "things",
        "kind": "Thing",
        "singular": "thing",
        "listKind": "ThingList",
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {"status": {}},
    }
    thing: Any = {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "names": names,
            "scope": "Namespaced",
            "versions": [version],
        },
    }
    for definition in (*crds.all(), thing):
        await made.must(
            "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition
        )
    for namespace in ("long", "short"):
        await made.must("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    for name in ("default", "other"):
        tree = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {},
        }
        await made.must("POST", QUEUES, tree)
        await made.must(
            "PATCH",
            f"{QUEUES}/{name}/status",
            {"status": {"state": "Open"}},
            "application/merge-patch+json",
        )
    for path in (
        "/jobs/mutate",
        "/jobs/validate",
        "/podgroups/mutate",
        "/podgroups/validate",
        "/pods/validate",
    ):
        rule = ADMISSIONS[path]
        kind = kind_of(rule)
        hook = webhook(rule, Where(url=URL), b"", in_process_settings(int(KUBERNETES_MINOR)))
        configuration = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": rule.configuration},
            "webhooks": [hook],
        }
        await made.must("POST", f"{HOOKS}/{kind.plural}", configuration)
    yield made
    api.stop()
    await server.store.close()


CONTAINER = {
    "name": "main",
    "image": "pause",
    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
}
POD_SPECS: list[Json] = [
    {"containers": [CONTAINER]},
    {"containers": [CONTAINER], "restartPolicy": "Never", "schedulerName": "volcano", "nodeSelector": {"type": "kwok"}},
    {"containers": [CONTAINER], "priorityClassName": "high"},
    {"containers": [CONTAINER], "automountServiceAccountToken": False},
    {"containers": [CONTAINER], "schedulingGates": [{"name": "example.com/wait"}]},
    {"containers": [{**CONTAINER, "volumeMounts": [{"name": "kube-api-access-abcde", "mountPath": "/x"}]}],
     "volumes": [{"name": "kube-api-access-abcde", "emptyDir": {}}]},
    {"containers": [{**CONTAINER, "image": ""}]},
    {"containers": [CONTAINER], "unknown": 1},
    {"containers": [CONTAINER, CONTAINER]},
    {"containers": [{**CONTAINER, "resources": {"requests": {"cpu": "0.1", "memory": "1m"}}}]},
    {},
]  # fmt: skip
TEMPLATE = {"spec": {"containers": [CONTAINER], "restartPolicy": "Never"}}
JOB_SPECS: list[Json] = [
    {"schedulerName": "volcano", "queue": "default", "minAvailable": 1, "tasks": [{"name": "work", "replicas": 1, "template": TEMPLATE}]},
    {"tasks": [{"replicas": 2, "template": TEMPLATE}, {"name": "b", "replicas": 1, "template": TEMPLATE, "unknown": True}]},
    {"tasks": [{"name": "t", "replicas": 2, "template": TEMPLATE}], "queue": "other", "plugins": {"ssh": [], "mpi": ["--master=t"]}},
    {"tasks": [{"name": "t", "replicas": 4, "template": TEMPLATE,
                "partitionPolicy": {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1}}]},
    {"tasks": [{"name": "t", "replicas": 1, "minAvailable": 3, "template": TEMPLATE}]},
    {"tasks": []},
    {"tasks": [{"name": "t", "replicas": "many", "template": TEMPLATE}]},
]  # fmt: skip
GROUP_SPECS: list[Json] = [
    {"queue": "default", "minMember": 1, "minResources": {"cpu": "100m", "pods": "1"}},
    {"queue": "other", "minMember": 3, "minTaskMember": {"work": 3}},
    {"minMember": 1},
    {"queue": "nowhere", "minMember": 1},
    {"queue": "default", "minMember": "one"},
]
THING_SPECS: list[Json] = [
    {"names": ["a"]},
    {},
    {"size": 9, "names": []},
    {"size": "large"},
    {"wrong": 1},
]
KINDS = (
    (PODS, "v1", "Pod", POD_SPECS),
    (JOBS, "batch.volcano.sh/v1alpha1", "Job", JOB_SPECS),
    (GROUPS, "scheduling.volcano.sh/v1beta1", "PodGroup", GROUP_SPECS),
    (THINGS, "example.com/v1", "Thing", THING_SPECS),
)
OWNER = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "name": "j",
    "controller": True,
    "blockOwnerDeletion": True,
}


def metadata(dice: random.Random, name: str) -> Json:
    """Mostly good, and such as comes again; sometimes odd."""
    odd = dice.random() < 0.2
    found: Json = {"name": name}
    if dice.random() < 0.7:
        found["namespace"] = "@"
    if dice.random() < 0.5:
        found["labels"] = dice.choice([{}, {"a": "x"}, {"a": name}])
    if dice.random() < 0.5:
        found["annotations"] = dice.choice([{}, {"scheduling.k8s.io/group-name": name}, {"n": "1"}])
    if dice.random() < 0.5:
        found["ownerReferences"] = [{**OWNER, "uid": f"{dice.getrandbits(32):08x}"}]
    if odd:
        found.update(dice.choice(ODD))
        if dice.random() < 0.2:
            found["generateName"] = dice.choice(["made-", "Bad_"])
            found.pop("name")
    return {key: found[key] for key in dice.sample(list(found), len(found))} if odd else found


ODD: list[Json] = [
    {"labels": {"a": "not a value"}}, {"labels": {"bad key/": "x"}}, {"labels": None}, {"labels": {"a": 1}},
    {"annotations": {"volcano.sh/jdb-min-available": "x"}}, {"annotations": {"n": "null"}}, {"annotations": {"n": None}},
    {"annotations": {"n": 3}}, {"annotations": {"kubernetes.io/config.mirror": "m"}},
    {"annotations": {"scheduler.alpha.kubernetes.io/critical-pod": ""}},
    {"annotations": {"hekla.io/filled-minimums": "*,default0,work"}}, {"annotations": {"hekla.io/filled-minimums": ""}},
    {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": '{"spec":{"tasks":[{"name":"work"},{}]}}'}},
    {"ownerReferences": [{**OWNER, "uid": "a"}, {**OWNER, "uid": "b"}]}, {"ownerReferences": [OWNER]}, {"ownerReferences": []},
    {"finalizers": ["example.com/hold"]}, {"finalizers": ["bare"]}, {"finalizers": []},
    {"uid": "u"}, {"generation": 4}, {"resourceVersion": "1"}, {"creationTimestamp": None}, {"unknown": 1}, {"managedFields": []},
    {"namespace": "elsewhere"}, {"name": "Not.A.Name"}, {"name": "n" * 64}, {"name": "dotted.name"}, {"name": ""}, {"name": "taken"},
]  # fmt: skip


async def upset(world: World, dice: random.Random) -> None:
    """Change something that cached creates depend on, or not; for both namespaces alike."""
    merge = "application/merge-patch+json"
    narrow, world.narrow = world.narrow, 0
    match dice.choice([0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7] if not narrow else [narrow]):
        case 0:
            state = dice.choice(["Open", "Closed"])
            await world.must(
                "PATCH",
                f"{QUEUES}/{dice.choice(['default', 'other'])}/status",
                {"status": {"state": state}},
                merge,
            )
        case 1:
            queue = dice.choice(["other", None])
            for namespace in ("long", "short"):
                patch = {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": queue}}}
                await world.must("PATCH", f"/api/v1/namespaces/{namespace}", patch, merge)
        case 2:
            secrets = dice.choice([[], [{"name": "pull"}]])
            for namespace in ("long", "short"):
                await world.ask(
                    "POST",
                    f"/api/v1/namespaces/{namespace}/serviceaccounts",
                    {"metadata": {"name": "default"}},
                )
                pulling = {"imagePullSecrets": secrets}
                await world.must(
                    "PATCH",
                    f"/api/v1/namespaces/{namespace}/serviceaccounts/default",
                    pulling,
                    merge,
                )
        case 3:
            await world.ask("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/high")
            if dice.random() < 0.7:
                tree = {
                    "metadata": {"name": "high"},
                    "value": dice.randint(1, 9),
                    "globalDefault": dice.random() < 0.5,
                }
                await world.must("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", tree)
        case 4:
            limits = [
                {
                    "type": "Container",
                    "defaultRequest": {"cpu": dice.choice(["1", "2"])},
                    "max": {"memory": "1Gi"},
                }
            ]
            for namespace in ("long", "short"):
                base = f"/api/v1/namespaces/{namespace}/limitranges"
                if (await world.ask("DELETE", f"{base}/l"))[0] != 200:
                    await world.must(
                        "POST", base, {"metadata": {"name": "l"}, "spec": {"limits": limits}}
                    )
        case 5:
            for namespace in ("long", "short"):
                base = f"/api/v1/namespaces/{namespace}/resourcequotas"
                if (await world.ask("DELETE", f"{base}/q"))[0] != 200:
                    world.narrow = 5
                    await world.must(
                        "POST",
                        base,
                        {
                            "metadata": {"name": "q"},
                            "spec": {"hard": {"pods": "300", "requests.cpu": "4"}},
                        },
                    )
        case 6:
            path = (
                f"{HOOKS}/mutatingwebhookconfigurations/{ADMISSIONS['/jobs/mutate'].configuration}"
            )
            selector = {} if narrow else {"matchLabels": {"a": "x"}}
            world.narrow = 0 if narrow else 6
            tree = await world.must("GET", path)
            tree["webhooks"][0]["objectSelector"] = selector
            await world.must("PUT", path, tree)
        case 7:
            path = f"{HOOKS}/mutatingadmissionpolicies"
            if (await world.ask("DELETE", f"{path}/p"))[0] == 200:
                await world.must("DELETE", f"{path[:-3]}ybindings/p")
                return
            world.narrow = 7
            rule = {
                "operations": ["CREATE"],
                "apiGroups": ["*"],
                "apiVersions": ["*"],
                "resources": ["pods", "things"],
            }
            expression = 'Object{metadata: Object.metadata{labels: {"by": "policy"}}}'
            mutation = {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": expression},
            }
            spec = {
                "matchConstraints": {"resourceRules": [rule]},
                "mutations": [mutation],
                "failurePolicy": "Fail",
                "reinvocationPolicy": "Never",
            }
            await world.must("POST", path, {"metadata": {"name": "p"}, "spec": spec})
            await world.must(
                "POST",
                f"{path[:-3]}ybindings",
                {"metadata": {"name": "p"}, "spec": {"policyName": "p"}},
            )


@pytest.mark.parametrize("seed", range(4))
async def test_cached_creates_give_what_full_creates_give(world: World, seed: int) -> None:
    dice = random.Random(seed)
    good = 0
    for number in range(300):
        if dice.random() < 0.02:
            await upset(world, dice)
        target, version, kind, specs = dice.choice(KINDS)
        tree: Json = {
            "apiVersion": version,
            "kind": kind,
            "metadata": metadata(dice, f"n{number}"),
            "spec": dice.choice(specs[:4]),
        }
        if dice.random() < 0.2:
            tree["spec"] = dice.choice(specs)
        if dice.random() < 0.08:
            tree.update(
                dice.choice(
                    [
                        {"status": {"phase": "Odd"}},
                        {"extra": {"z": 1}},
                        {"kind": "Other"},
                        {"apiVersion": "v9"},
                        {"spec": None},
                    ]
                )
            )
        query = dice.choice(["", "", "", "", "", "", "?dryRun=All", "?fieldValidation=Strict"])
        code, _ = await world.both(target + query, tree, dice.choice(["one", "one", "two"]))
        good += code == 201
    assert good > 100 and world.hits > 20, (good, world.hits)


async def test_webhooks_with_cached_answers_are_counted_and_audited(world: World) -> None:
    def asked() -> dict[str, int]:
        return {
            name: sum(durations.counts)
            for (name, *_), durations in world.server.api.webhooks.calls.items()
        }

    notes = []
    for number in range(5):
        before = asked()
        tree = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": f"j{number}"},
            "spec": JOB_SPECS[0],
        }
        code, _, _, noted = await world.create(
            JOBS.format("short"), json.dumps(tree, separators=(",", ":")).encode(), "one"
        )
        assert code == 201
        notes.append(noted)
        assert {
            name: count - before.get(name, 0) for name, count in asked().items()
        } == dict.fromkeys(asked(), 1)
    assert world.hits == 3 and notes[0] == notes[4] and notes[0]


async def test_a_body_with_a_repeated_key_takes_the_full_path(world: World) -> None:
    spec = json.dumps(JOB_SPECS[0], separators=(",", ":"))
    first, second = '{"name":"one"}', '{"name":"two","name":"three"}'
    bodies = [
        f'{{"apiVersion":"batch.volcano.sh/v1alpha1","kind":"Job","metadata":{metadata},"spec":{spec}{more}}}'
        for metadata, more in (
            (first, ""),
            ('{"name":"b"}', ""),
            ('{"name":"c"}', f',"spec":{spec}'),
            (second, ""),
        )
    ]
    warnings = [
        (await world.create(JOBS.format("short"), body.encode(), "one"))[2] for body in bodies
    ]
    assert warnings == [
        None,
        None,
        '299 - "duplicate field \\"spec\\""',
        '299 - "duplicate field \\"metadata.name\\""',
    ]
    assert world.hits == 0


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("has(object.spec.schedulerName) && object.spec.schedulerName in ['volcano']", True),
        (
            "has(object.metadata.annotations) && ('a' in object.metadata.annotations || 'b' in object.metadata.annotations)",
            True,
        ),
        ("object.spec.replicas > 1 ? object.spec.paused : !object.spec.paused", True),
        ("size(object.spec.tasks) > 1", True),
        ("object.metadata.annotations['a'] == 'b'", False),
        ("object.metadata.annotations == object.spec.annotations", False),
        ("object.spec.name in object.metadata.annotations", False),
        ("'a' in object.metadata.labels", False),
        ("has(object.metadata.labels)", False),
        ("object.metadata.name == 'a'", False),
        ("has(object.spec)", True),
        ("object == oldObject", False),
        ("request.namespace == 'a'", False),
        ("object.spec.tasks.all(task, task.name == object.metadata.name)", False),
        ("authorizer.group('').resource('pods').check('get').allowed()", False),
        ("object.?spec.name.hasValue()", False),
        ("true", True),
    ],
)
def test_conditions_are_remembered_that_ask_for_names_alone(
    expression: str, expected: bool
) -> None:
    assert reads_spec_and_annotation_names(expression) is expected


async def test_a_match_condition_is_evaluated_again_for_other_annotations(world: World) -> None:
    spec = {**POD_SPECS[0], "schedulerName": "volcano"}
    budget = {"volcano.sh/jdb-min-available": "1"}
    codes = []
    for number, noted in enumerate(
        [{"a": "b"}, {"a": "b"}, {"a": "b"}, {"a": "c"}, budget, {"a": "d"}, {}]
    ):
        tree = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}", "annotations": noted},
            "spec": spec,
        }
        codes.append(
            (
                await world.create(
                    PODS.format("short"), json.dumps(tree, separators=(",", ":")).encode(), "one"
                )
            )[0]
        )
    # Nobody listens where the webhook of pods with a budget is.
    assert codes == [
        201,
        201,
        201,
        201,
        500,
        201,
        201,
    ]
    assert world.hits >= 3


CLASS = {"metadata": {"name": "high"}, "value": 7, "globalDefault": True}
RUNTIME = {"metadata": {"name": "r"}, "handler": "h", "overhead": {"podFixed": {"cpu": "1"}}}
LIMITS = {
    "metadata": {"name": "l"},
    "spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]},
}
MERGE = "application/merge-patch+json"
CLOSED = ("PATCH", f"{QUEUES}/default/status", {"status": {"state": "Closed"}}, MERGE)
ANNOTATED = {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": "other"}}}
RUN = {"containers": [CONTAINER], "runtimeClassName": "r"}


@pytest.mark.parametrize(
    ("kind", "spec", "before", "change"),
    [
        (KINDS[0], POD_SPECS[1], None, ("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", CLASS)),
        (KINDS[0], POD_SPECS[1], None, ("POST", "/api/v1/namespaces/{}/limitranges", LIMITS)),
        (KINDS[0], POD_SPECS[1], None, ("POST", "/api/v1/namespaces/{}/serviceaccounts",
                                        {"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "pull"}]})),
        (KINDS[0], RUN, ("POST", "/apis/node.k8s.io/v1/runtimeclasses", RUNTIME), ("DELETE", "/apis/node.k8s.io/v1/runtimeclasses/r")),
        (KINDS[1], JOB_SPECS[0], None, CLOSED),
        (KINDS[2], GROUP_SPECS[0], None, CLOSED),
        (KINDS[2], GROUP_SPECS[0], None, ("PATCH", "/api/v1/namespaces/{}", ANNOTATED, MERGE)),
    ],
)  # fmt: skip
async def test_what_admission_looks_at_has_changed(
    world: World, kind: Any, spec: Json, before: Any, change: Any
) -> None:
    async def make(change: Any) -> None:
        for target in dict.fromkeys(change[1].format(namespace) for namespace in ("long", "short")):
            await world.must(change[0], target, *change[2:])

    if before is not None:
        await make(before)
    target, version, name, _ = kind
    answers = []
    for number in range(5):
        if number == 4:
            await make(change)
        tree = {
            "apiVersion": version,
            "kind": name,
            "metadata": {"name": f"n{number}"},
            "spec": spec,
        }
        code, answer = await world.both(target, tree)
        answers.append((code, answer.get("spec")))
    assert world.hits == 2
    assert MADE_UP.sub("", str(answers[3])) != MADE_UP.sub("", str(answers[4]))


@pytest.mark.parametrize("name", ["n" * 64, "n" * 57])
async def test_rules_about_a_jobs_name_are_asked_where_its_spec_is_known(
    world: World, name: str
) -> None:
    codes = []
    for one in ("a", "b", "c", "d", name):
        tree = {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": {"name": one},
            "spec": JOB_SPECS[0],
        }
        codes.append((await world.both(JOBS, tree))[0])
    # Also where a name is too long with that of a task behind it.
    assert codes == [
        201,
        201,
        201,
        201,
        400,
    ]


@pytest.mark.parametrize("first", [True, False])
async def test_pods_of_a_kubelets_own_teach_nothing_and_learn_nothing(
    world: World, first: bool
) -> None:
    accounts = []
    for number in range(6):
        own = (number < 3) is first
        meta: Json = {
            "name": f"p{number}",
            "annotations": {"kubernetes.io/config.mirror" if own else "n": "m"},
        }
        tree = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": {**POD_SPECS[1], "nodeName": "n1"},
        }
        _, answer = await world.both(PODS, tree)
        accounts.append("serviceAccountName" in answer["spec"])
    assert accounts == [not first] * 3 + [first] * 3
