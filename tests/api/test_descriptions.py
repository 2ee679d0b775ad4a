"""What `kubectl explain` says: every batch kind and its own fields are described, and nothing that
is not there."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.api import catalog, crds
from hekla.api.descriptions import FIELDS, KINDS

DEFINITIONS = {
    kind.kind: crds.definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for kind in catalog.INSTALLED
}


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_every_kind_says_what_it_is(kind: str) -> None:
    schema = DEFINITIONS[kind]
    assert schema["description"] == KINDS[kind]
    fields = schema["properties"].get("spec", {}).get("properties", {})
    assert [name for name, field in fields.items() if not field.get("description")] == []


def test_every_sentence_belongs_to_a_field() -> None:
    said: set[str] = set()

    def walk(schema: dict[str, Any]) -> None:
        said.add(schema.get("description", ""))
        for inner in (
            *schema.get("properties", {}).values(),
            schema.get("items"),
            schema.get("additionalProperties"),
        ):
            if isinstance(inner, dict):
                walk(inner)

    for schema in DEFINITIONS.values():
        walk(schema)
    written = {sentence for fields in FIELDS.values() for sentence in fields.values()} | set(
        KINDS.values()
    )
    assert written - said == set()
