"""Definitions of custom kinds.  Their schemas stay trees: whoever writes one has it as a tree
already."""

from __future__ import annotations

from typing import Any

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.meta import Condition, Object, Struct, always


class CustomResourceDefinitionNames(Struct):
    plural: str = ""
    singular: str = ""
    short_names: list[str] = []
    kind: str = ""
    list_kind: str = ""
    categories: list[str] = []


class CustomResourceDefinitionSpec(Struct):
    group: str = ""
    names: CustomResourceDefinitionNames = msgspec.field(
        default_factory=CustomResourceDefinitionNames
    )
    scope: str = ""
    versions: list[dict[str, Any]] = []
    conversion: dict[str, Any] | None = None
    preserve_unknown_fields: bool = False


class CustomResourceDefinitionStatus(Struct):
    conditions: list[Condition] = []
    accepted_names: CustomResourceDefinitionNames | None = None
    stored_versions: list[str] = []
    observed_generation: int = 0


class CustomResourceDefinition(Object):
    api_version: str = always("apiextensions.k8s.io/v1")
    kind: str = always("CustomResourceDefinition")
    spec: CustomResourceDefinitionSpec = msgspec.field(default_factory=CustomResourceDefinitionSpec)
    status: CustomResourceDefinitionStatus = msgspec.field(
        default_factory=CustomResourceDefinitionStatus
    )


CUSTOM_RESOURCE_DEFINITION = kind_of(
    CustomResourceDefinition, "customresourcedefinitions", namespaced=False
)
