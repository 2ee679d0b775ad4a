"""Options of the checks, which differ between their callers."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """How a spec is checked."""

    features: bool = True
    """Whether the features count that a server of Kubernetes 1.36 has switched on: printable names
    of variables, variables from files, underscores in searched domains, hooks that sleep for no
    time, rules for the restarts of single containers.  Of the fields of features that are off there
    nothing is said: such a server drops them.
    """
    resources: bool = True
    """Whether `spec.resources` counts."""
    pod: bool = False
    """Whether it is a pod's, not a template's, which some things are let through of."""


POD = Options(pod=True)
TEMPLATE = Options()
