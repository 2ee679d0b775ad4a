"""Where data is, and which workloads should run near it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec

from hekla.api.kinds import kind_of
from hekla.api.kubernetes.references import ObjectReference
from hekla.api.meta import Condition, Object, Struct, always
from hekla.api.schema import Int32, Required, Rule

API_VERSION = "datadependency.volcano.sh/v1alpha1"


class ReclaimPolicy(StrEnum):
    RETAIN = "Retain"
    DELETE = "Delete"


class ClaimPhase(StrEnum):
    PENDING = "Pending"
    BOUND = "Bound"


class Locality(Struct):
    cluster_names: Required[list[str]] = []


class DataSourceSpec(Struct):
    system: Required[str] = ""
    type: Required[str] = ""
    name: Required[str] = ""
    locality: Locality | None = None
    attributes: dict[str, str] = {}
    reclaim_policy: Annotated[str, Rule(default="Retain", enum=tuple(ReclaimPolicy))] = ""


class DataSourceStatus(Struct):
    claim_refs: list[ObjectReference] = []
    bound_claims: Int32 = 0
    conditions: list[Condition] = []


class DataSource(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("DataSource")
    spec: DataSourceSpec = msgspec.field(default_factory=DataSourceSpec)
    status: DataSourceStatus = msgspec.field(default_factory=DataSourceStatus)


class Workload(Struct):
    api_version: Required[str] = ""
    kind: Required[str] = ""
    name: Required[str] = ""
    namespace: str = ""


class DataSourceClaimSpec(Struct):
    system: Required[str] = ""
    data_source_type: Required[str] = ""
    data_source_name: Required[str] = ""
    workload: Required[Workload] = msgspec.field(default_factory=Workload)
    attributes: dict[str, str] = {}


class DataSourceClaimStatus(Struct):
    phase: Annotated[str, Rule(default="Pending", enum=tuple(ClaimPhase))] = ""
    bound_data_source: str = ""
    conditions: list[Condition] = []


class DataSourceClaim(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("DataSourceClaim")
    spec: DataSourceClaimSpec = msgspec.field(default_factory=DataSourceClaimSpec)
    status: DataSourceClaimStatus = msgspec.field(default_factory=DataSourceClaimStatus)


DATA_SOURCE = kind_of(DataSource, "datasources", namespaced=False, status=True)
DATA_SOURCE_CLAIM = kind_of(DataSourceClaim, "datasourceclaims", status=True)
