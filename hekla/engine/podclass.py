"""A stable door for users' plugins (docs/scheduler/custom-plugins.md): names of
`hekla.engine.model.podclass`."""

from __future__ import annotations

from hekla.engine.model.podclass import PodClass

__all__ = ["PodClass"]
