"""The network as a tree: HyperNodes contain nodes or other HyperNodes, and a lower tier is a faster
network."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from hekla.api.kinds import Column, kind_of
from hekla.api.meta import Condition, LabelSelector, Object, Struct, always
from hekla.api.schema import SUBDOMAIN_PATTERN, Rule, Validation

API_VERSION = "topology.volcano.sh/v1alpha1"


class MemberType(StrEnum):
    NODE = "Node"
    HYPER_NODE = "HyperNode"


class ExactMatch(Struct):
    name: Annotated[
        str, Rule(required=True, min_length=1, max_length=253, pattern=SUBDOMAIN_PATTERN)
    ] = ""


class RegexMatch(Struct):
    pattern: Annotated[str, Rule(required=True, min_length=1)] = ""


class MemberSelector(Struct):
    exact_match: ExactMatch | None = None
    regex_match: RegexMatch | None = None
    label_match: LabelSelector | None = None


ONE_MATCH = (
    Validation(
        "has(self.exactMatch) || has(self.regexMatch) || has(self.labelMatch)",
        "Either ExactMatch or RegexMatch or LabelMatch must be specified",
    ),
    Validation(
        "(has(self.exactMatch) ? 1 : 0) + (has(self.regexMatch) ? 1 : 0) + (has(self.labelMatch) ? 1 : 0) <= 1",
        "Only one of ExactMatch, RegexMatch, or LabelMatch can be specified",
    ),
)


class Member(Struct):
    type: Annotated[str, Rule(required=True, enum=tuple(MemberType))] = ""
    selector: Annotated[MemberSelector, Rule(validations=ONE_MATCH)] | None = None


class HyperNodeSpec(Struct):
    tier: Annotated[int, Rule(required=True, minimum=0)] = always(0)
    tier_name: Annotated[str, Rule(max_length=253)] = ""
    members: Annotated[list[Member], Rule(min_items=1)] = []


class HyperNodeStatus(Struct):
    conditions: list[Condition] = []
    node_count: Annotated[int, Rule(format="int64", minimum=0)] = 0


class HyperNode(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("HyperNode")
    spec: HyperNodeSpec = msgspec.field(default_factory=HyperNodeSpec)
    status: HyperNodeStatus = msgspec.field(default_factory=HyperNodeStatus)


HYPER_NODE = kind_of(
    HyperNode,
    "hypernodes",
    namespaced=False,
    short_names=("hn",),
    columns=(
        Column("Tier", "string", ".spec.tier"),
        Column("TierName", "string", ".spec.tierName"),
        Column("NodeCount", "integer", ".status.nodeCount"),
        Column("Age", "date", ".metadata.creationTimestamp"),
    ),
    status=True,
)
