"""A stable door for users' plugins (docs/scheduler/custom-plugins.md): names of
`hekla.engine.framework.plugin` and `hekla.engine.model.nodes`."""

from __future__ import annotations

from hekla.engine.framework.plugin import (
    ABSTAIN,
    MAX_SCORE,
    PERMIT,
    REJECT,
    Answer,
    Arguments,
    Code,
    Depends,
    Filter,
    NoArguments,
    Normalise,
    Plugin,
    Reads,
    Running,
    Score,
    Source,
    Victims,
    defines,
)
from hekla.engine.model.nodes import NodeTable
from hekla.engine.model.nodeview import NodeView

__all__ = [
    "ABSTAIN",
    "MAX_SCORE",
    "PERMIT",
    "REJECT",
    "Answer",
    "Arguments",
    "Code",
    "Depends",
    "Filter",
    "NoArguments",
    "NodeTable",
    "NodeView",
    "Normalise",
    "Plugin",
    "Reads",
    "Running",
    "Score",
    "Source",
    "Victims",
    "defines",
]
