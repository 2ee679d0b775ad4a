"""Request scripts that nobody wrote: valid objects with something changed, and anything one may do
with them.

Kinds, verbs, bodies good and bad, patch languages and parameters are drawn from a seed, which gives
the same scripts again; `shrinking.py` makes the short one of a long one that shows a difference.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from tests.cluster.api import APPLY, JSON, JSON_PATCH, MERGE, STRATEGIC, TABLE, YAML, Tree
from tests.kubernetes.exchange import Script, Step
from tests.kubernetes.fuller import FULLER
from tests.kubernetes.samples import SAMPLES, Sample

STEPS = 40
MADE_BY_STATUS = ("services", "validatingadmissionpolicies")
"""Kinds that Kubernetes makes objects of where only a status is written; what would come after that
differs too."""
LATER = {"csinodes": "status"}
"""What Kubernetes' next version knows, and our server too."""
ODD: tuple[Any, ...] = (
    None,
    "",
    " ",
    "x",
    "UPPER",
    "a b",
    "a" * 300,
    0,
    1,
    -1,
    1.5,
    10**9,
    True,
    False,
    [],
    {},
    [None],
    ["x"],
    {"a": None},
    {"a": "b"},
    "100%",
    "1Gi",
    "-1",
    "2020-01-01T00:00:00Z",
    "10.0.0.1",
    "ä",
    "\u0000",
    [{"name": "x"}, {"name": "x"}],
)
ACCEPTS = (
    "",
    JSON,
    YAML,
    TABLE,
    "*/*",
    "text/html",
    f"text/html,{JSON}",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
)
SELECTORS = ("a=b", "a!=b", "a in (b,c)", "!a", "a", "a in", "=", "a>1", "a=b,c!=d")
VERSIONS = ("", "0", "1", "x", "-1", "9" * 20, "{{rv}}")
DELETIONS: tuple[Any, ...] = (
    {"preconditions": {"uid": "x"}},
    {"preconditions": {"resourceVersion": "1"}},
    {"propagationPolicy": "Foreground"},
    {"propagationPolicy": "Nowhere"},
    {"propagationPolicy": "Orphan", "orphanDependents": True},
    {"gracePeriodSeconds": -1},
    {"gracePeriodSeconds": "x"},
    {"dryRun": ["All"]},
    {"dryRun": ["x"]},
    {"kind": "Pod", "apiVersion": "v1"},
    [],
    "x",
)
QUERIES: tuple[dict[str, str], ...] = (
    {"dryRun": "All"},
    {"dryRun": "x"},
    {"fieldValidation": "Strict"},
    {"fieldValidation": "Warn"},
    {"fieldValidation": "Ignore"},
    {"fieldManager": "me"},
    {"pretty": "true"},
    {"force": "true"},
    {"unknown": "1"},
)


def scripts(seed: int, count: int) -> Iterator[Script]:
    """So many scripts, each about one kind."""
    for number in range(count):
        chance = random.Random(f"{seed}-{number}")
        sample = chance.choice((*SAMPLES, *FULLER))
        yield Script(f"made-up {seed}-{number} {sample.plural}", tuple(_steps(chance, sample)))


def _steps(chance: random.Random, sample: Sample) -> Iterator[Step]:
    names = ["x", "y"] if sample.namespaced else ["{{ns}}-x", "{{ns}}-y"]
    for _ in range(STEPS):
        name = chance.choice(names)
        one = f"{sample.collection}/{name}"
        if sample.status and chance.random() < 0.15 and sample.plural not in MADE_BY_STATUS:
            one += "/status"
        query = dict(chance.choice(QUERIES)) if chance.random() < 0.3 else {}
        ways = ("create", "get", "list", "update", "patch", "delete", "pages", "options", "scale")
        what = chance.choices(ways, (5, 2, 1, 3, 5, 1, 1, 0.5, 0.5))[0]
        if what == "create":
            yield Step("POST", sample.collection, _body(chance, sample, name), query=query)
        elif what == "get":
            yield Step("GET", one, accept=chance.choice(ACCEPTS))
        elif what == "list":
            yield Step(
                "GET",
                sample.collection,
                accept=chance.choice((TABLE, "", YAML)),
                query={
                    "labelSelector": chance.choice(SELECTORS),
                    "fieldSelector": f"metadata.name={name}",
                    "limit": chance.choice(("", "0", "1")),
                },
            )
        elif what == "pages":
            yield _page(chance, sample)
        elif what == "options":
            yield Step("DELETE", one.removesuffix("/status"), chance.choice(DELETIONS))
        elif what == "scale":
            yield _scale(chance, sample, one.removesuffix("/status"))
        elif what == "update":
            yield Step("PUT", one, _body(chance, sample, name), query=query)
        elif what == "patch":
            yield _patch(chance, sample, one, query)
        else:
            yield Step(
                "DELETE",
                one.removesuffix("/status"),
                query={"gracePeriodSeconds": "0"} if chance.random() < 0.7 else {},
            )


def _page(chance: random.Random, sample: Sample) -> Step:
    """A list with parameters of all sorts, those of a watch among them as far as they are refused."""
    query = {
        "limit": chance.choice(("", "1", "x", "-1")),
        "labelSelector": chance.choice(("", "", *SELECTORS)),
    }
    query["resourceVersion"] = chance.choice(VERSIONS)
    query["resourceVersionMatch"] = chance.choice(("", "", "Exact", "NotOlderThan", "x"))
    query["fieldSelector"] = chance.choice(
        (
            "",
            "",
            "metadata.name!=x",
            "spec.none=x",
            "metadata.namespace={{ns}}",
            "=",
            "metadata.name",
        )
    )
    if chance.random() < 0.3:
        query["continue"] = chance.choice(("x", "{{continue}}"))
    kept = {name: value for name, value in query.items() if value}
    return Step("GET", sample.collection, query=kept, accept=chance.choice(("", JSON, TABLE)))


def _scale(chance: random.Random, sample: Sample, one: str) -> Step:
    """A subresource, of whatever kind."""
    path = f"{one}/{chance.choice(('scale', 'status', 'eviction', 'binding', 'none'))}"
    method = chance.choice(("GET", "PUT", "PATCH", "POST"))
    if method == "GET":
        return Step("GET", path)
    if method == "PATCH":
        return Step("PATCH", path, {"spec": {"replicas": chance.choice((0, 3, -1, "x"))}}, MERGE)
    return Step(
        method,
        path,
        {
            "metadata": {"name": one.rsplit("/")[-1]},
            "spec": {"replicas": chance.choice((0, 3, -1, "x", None))},
        },
    )


def _body(chance: random.Random, sample: Sample, name: str) -> Tree:
    """An object; every other one with something wrong in it, or merely unusual."""
    body = copy.deepcopy(sample.named(name))
    while chance.random() < 0.5:
        _change(chance, body)
    if sample.plural in LATER:
        body.pop(LATER[sample.plural], None)
    return body


def _patch(chance: random.Random, sample: Sample, path: str, query: dict[str, str]) -> Step:
    kind = chance.choice((MERGE, STRATEGIC, JSON_PATCH, APPLY))
    whole = sample.named("x")
    if kind == APPLY:
        manager = {
            "fieldManager": chance.choice(("a", "b")),
            **({"force": "true"} if chance.random() < 0.5 else {}),
        }
        return Step(
            "PATCH",
            path,
            _body(chance, sample, path.removesuffix("/status").rsplit("/")[-1]),
            kind,
            query={**query, **manager},
        )
    if kind == JSON_PATCH:
        return Step(
            "PATCH",
            path,
            [_operation(chance, whole) for _ in range(chance.randint(1, 3))],
            kind,
            query=query,
        )
    patch: Tree = (
        {"metadata": {"labels": {"a": chance.choice(("b", None, "c"))}}}
        if chance.random() < 0.4
        else {}
    )
    keys = [key for key in whole if key not in ("apiVersion", "kind", "metadata")]
    if keys and chance.random() < 0.8:
        part = {key: copy.deepcopy(whole[key]) for key in chance.sample(keys, 1)}
        _change(chance, part)
        patch.update(part)
    return Step("PATCH", path, patch, kind, query=query)


def _operation(chance: random.Random, whole: Tree) -> Tree:
    place = chance.choice(
        ["/metadata/labels", "/metadata/annotations/a", "/none/none", *_pointers(whole)]
    )
    operation: Tree = {
        "op": chance.choice(("add", "replace", "remove", "test", "copy", "move")),
        "path": place,
    }
    if operation["op"] in ("add", "replace", "test"):
        operation["value"] = chance.choice(ODD)
    elif operation["op"] != "remove":
        operation["from"] = chance.choice(["/metadata/labels", *_pointers(whole)])
    return operation


def _pointers(value: Any, here: str = "") -> list[str]:
    """Pointers to what is inside of an object, apart from what says which object it is."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    found = []
    for key, child in inner:
        if here == "" and key in ("apiVersion", "kind", "metadata"):
            continue
        found += [f"{here}/{key}", *_pointers(child, f"{here}/{key}")]
    return found


def _change(chance: random.Random, tree: Tree) -> None:
    """One change somewhere in the tree: something odd in a place, something missing, something
    more."""
    node: Any = tree
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = chance.choice(keys)
        child = node[key]
        if not isinstance(child, dict | list) or not child or chance.random() < 0.3:
            break
        node = child
    action = chance.random()
    if action < 0.55:
        node[key] = copy.deepcopy(chance.choice(ODD))
    elif action < 0.8:
        del node[key]
    elif isinstance(node, dict):
        node[chance.choice(("wrong", "status", "spec", "labels"))] = copy.deepcopy(
            chance.choice(ODD)
        )
    else:
        node.append(copy.deepcopy(chance.choice(ODD)))
