"""A stable door for users' plugins (docs/scheduler/custom-plugins.md): names of
`hekla.engine.framework.custom`."""

from __future__ import annotations

from hekla.engine.framework.custom import Node, Pod, SimplePlugin

__all__ = ["Node", "Pod", "SimplePlugin"]
