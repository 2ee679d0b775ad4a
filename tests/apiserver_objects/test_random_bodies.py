"""Whatever a client sends, a kind's way from bytes to errors ends in a tree, in causes, or in a
clean refusal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hekla.local.apiserver.objects import builtin
from hekla.local.apiserver.objects.custom import custom
from hekla.local.apiserver.objects.encoding import fields
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.kind import Kind
from tests.apiserver_objects.trees import JUNK, body

KINDS = {(kind.group, kind.version, kind.kind): kind for kind in builtin.kinds()}
NAMES = sorted(KINDS)
NOW = 1_700_000_000.0


def live(kind: Kind, raw: bytes, media: str = "application/json") -> None:
    """One object's way through creation, update, status and printing."""
    assert kind.decode is not None
    tree = kind.decode(raw, media, "Warn").tree
    for name in ("apiVersion", "kind"):
        tree.pop(name, None)
    tree.setdefault("metadata", {}).setdefault("name", "a")
    again = json.loads(json.dumps(tree))
    strategy = kind.strategy
    strategy.default(tree)
    strategy.prepare_create(tree)
    for error in strategy.validate_create(tree):
        assert error.reason.startswith("FieldValue") and error.text
    strategy.default(again)
    strategy.prepare_update(again, tree)
    strategy.validate_update(again, tree)
    strategy.prepare_status(again, tree)
    strategy.validate_status(again, tree)
    for column in kind.columns:
        column.cell(tree, NOW)


@pytest.mark.parametrize(
    "key", NAMES, ids=[f"{group or 'core'}.{version}.{kind}" for group, version, kind in NAMES]
)
def test_random_objects_of_every_kind(key: tuple[str, str, str]) -> None:
    kind = KINDS[key]
    described = fields.root(*key)
    assert described is not None

    @given(
        body(described.section, described.name), body(described.section, described.name, junk=True)
    )
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    def run(typed: dict[str, Any], wild: dict[str, Any]) -> None:
        live(kind, json.dumps(typed).encode())
        try:
            live(kind, json.dumps(wild).encode())
        except BadBody as refusal:
            assert refusal.code == 400

    run()


@given(
    st.binary(max_size=200) | st.text(max_size=100).map(str.encode),
    st.sampled_from(["application/json", "application/yaml"]),
)
@settings(max_examples=300, deadline=None)
def test_random_bytes(raw: bytes, media: str) -> None:
    for kind in (
        KINDS["", "v1", "Pod"],
        KINDS["apiextensions.k8s.io", "v1", "CustomResourceDefinition"],
        widget(),
    ):
        try:
            live(kind, raw, media)
        except BadBody as refusal:
            assert refusal.code == 400


@given(JUNK)
@settings(max_examples=200, deadline=None)
def test_random_custom_objects(spec: Any) -> None:
    tree = {
        "apiVersion": "ex.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "spec": spec,
        "status": spec,
    }
    try:
        live(widget(), json.dumps(tree).encode())
    except BadBody as refusal:
        assert refusal.code == 400


def widget() -> Kind:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["a"],
                "properties": {
                    "a": {"type": "integer", "minimum": 1, "default": 3},
                    "": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"In": {"type": "string"}}},
                    },
                    "In": {"x-kubernetes-int-or-string": True},
                    "Exists": {
                        "type": "object",
                        "additionalProperties": {"type": "string", "nullable": True},
                    },
                },
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {"plural": "widgets", "kind": "Widget"}
    return custom.kinds_of(
        {"spec": {"group": "ex.com", "scope": "Namespaced", "names": names, "versions": [version]}}
    )[0]
