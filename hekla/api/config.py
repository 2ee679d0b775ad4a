"""Colocation: how selected pods share a node's memory with others."""

from __future__ import annotations

from typing import Annotated

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.meta import Condition, LabelSelector, Object, Struct, always
from hekla.api.schema import Required, Rule

API_VERSION = "config.volcano.sh/v1alpha1"


class MemoryQos(Struct):
    """Percentages of a container's memory limit: throttled above `high`, protected below `low`,
    never reclaimed below `min`."""

    high_ratio: Annotated[int | None, Rule(default=100, minimum=0, maximum=100)] = None
    low_ratio: Annotated[int | None, Rule(default=0, minimum=0, maximum=100)] = None
    min_ratio: Annotated[int | None, Rule(default=0, minimum=0, maximum=100)] = None


class ColocationConfigurationSpec(Struct):
    selector: LabelSelector | None = None
    memory_qos: MemoryQos | None = None


class ColocationConfigurationStatus(Struct):
    conditions: Annotated[list[Condition], Rule(list_type="map", list_keys=("type",))] = []


class ColocationConfiguration(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("ColocationConfiguration")
    spec: Required[ColocationConfigurationSpec] = msgspec.field(
        default_factory=ColocationConfigurationSpec
    )
    status: ColocationConfigurationStatus = msgspec.field(
        default_factory=ColocationConfigurationStatus
    )


COLOCATION_CONFIGURATION = kind_of(ColocationConfiguration, "colocationconfigurations", status=True)
