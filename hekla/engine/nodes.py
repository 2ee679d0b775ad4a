"""A stable door for users' plugins (docs/scheduler/custom-plugins.md): names of
`hekla.engine.model.nodes`."""

from __future__ import annotations

from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.nodeview import NodeView

__all__ = ["NodeTable", "NodeView"]
