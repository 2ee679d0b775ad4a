"""NodeShards: which nodes belong to which scheduler where several share a cluster."""

from __future__ import annotations

import msgspec

from hekla.api.kinds import Column, kind_of
from hekla.api.meta import Object, Struct, always
from hekla.api.schema import Required, Time

API_VERSION = "shard.volcano.sh/v1alpha1"


def _no_nodes() -> list[str]:
    return []


class NodeShardSpec(Struct):
    nodes_desired: Required[list[str]] = msgspec.field(default_factory=_no_nodes)
    """Required, so an empty list is written, too."""


class NodeShardStatus(Struct):
    last_update_time: Time = ""
    nodes_in_use: list[str] = []
    nodes_to_add: list[str] = []
    nodes_to_remove: list[str] = []


class NodeShard(Object):
    api_version: str = always(API_VERSION)
    kind: str = always("NodeShard")
    spec: Required[NodeShardSpec] = msgspec.field(default_factory=NodeShardSpec)
    status: NodeShardStatus = msgspec.field(default_factory=NodeShardStatus)


NODE_SHARD = kind_of(
    NodeShard,
    "nodeshards",
    namespaced=False,
    short_names=("nsh",),
    columns=(Column("AGE", "date", ".metadata.creationTimestamp"),),
    status=True,
)
