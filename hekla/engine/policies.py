"""Reading a policy: the plugins and actions that there are, beside the reader that knows neither."""

from __future__ import annotations

from collections.abc import Mapping

from hekla.api.trees import Tree
from hekla.engine.actions import ACTIONS
from hekla.engine.framework.plugin import Plugin
from hekla.engine.framework.policy import DEFAULT, Policy, PolicyReader
from hekla.engine.plugins import PLUGINS


def read_policy(
    tree: Tree | None,
    *,
    plugins: Mapping[str, type[Plugin]] | None = None,
    defaults: bool = True,
    strict: bool = True,
) -> Policy:
    """Read a policy from the tree of its YAML.

    `plugins`: further plugins by name (custom ones).  `defaults`: a flag that is absent is on, as
    in a file; without, it is off, as in a session built by hand.  `strict`: problems raise
    PolicyError; without, what is wrong is left out.
    """
    arguments = {name: action.arguments for name, action in ACTIONS.items()}
    return PolicyReader({**PLUGINS, **(plugins or {})}, arguments, defaults, strict).read(
        tree or {}
    )


def default_policy() -> Policy:
    """The policy that is used when none is given, as the chart ships it (operations 2.4)."""
    return read_policy(DEFAULT)
