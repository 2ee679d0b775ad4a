"""A stable door for users' plugins (docs/scheduler/custom-plugins.md): names of
`hekla.engine.model.resources`."""

from __future__ import annotations

from hekla.engine.model.resources import CPU, MEMORY, PODS, Amounts, Floats

__all__ = ["CPU", "MEMORY", "PODS", "Amounts", "Floats"]
