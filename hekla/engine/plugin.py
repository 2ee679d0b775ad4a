"""A stable door for users' plugins (docs/scheduler/custom-plugins.md): names of
`hekla.engine.framework.plugin`."""

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
    NodeTable,
    NodeView,
    Normalise,
    Plugin,
    Reads,
    Running,
    Score,
    Source,
    Victims,
    defines,
)

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
