"""Colocation: how selected pods share a node's memory with others."""

from __future__ import annotations

from typing import Annotated

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.meta import Condition, LabelSelector, Object, Struct, always
from hekla.api.schema import Required, Rule, Validation

API_VERSION = "config.volcano.sh/v1alpha1"


class MemoryQos(Struct):
    """Percentages: of a container's memory limit, above which it is throttled (`high`; 0 and 100:
    nowhere), and of its request, which is reclaimed last (`low`) or never (`min`)."""

    high_ratio: Annotated[int | None, Rule(default=100, minimum=0, maximum=100)] = None
    low_ratio: Annotated[int | None, Rule(default=0, minimum=0, maximum=100)] = None
    min_ratio: Annotated[int | None, Rule(default=0, minimum=0, maximum=100)] = None


LOW_COVERS_MIN = Validation(
    "!has(self.lowRatio) || !has(self.minRatio) || self.lowRatio == 0 || self.minRatio <= self.lowRatio",
    "minRatio must not be above lowRatio: what is never reclaimed must not be more than what is reclaimed "
    "last; raise lowRatio, lower minRatio, or set lowRatio to 0",
)


class ColocationConfigurationSpec(Struct):
    selector: LabelSelector | None = None
    memory_qos: Annotated[MemoryQos, Rule(validations=(LOW_COVERS_MIN,))] | None = None


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
