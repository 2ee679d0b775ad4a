"""A cluster as `kubectl get nodes,queues,priorityclasses -o yaml` prints it: one List, or several
documents."""

from __future__ import annotations

from typing import Any

import yaml

from hekla.api.text import yamltext
from hekla.api.trees import Tree
from hekla.simulator.workload import InputError, of_kind, queue

KINDS = (
    "Node", "Queue", "PriorityClass", "HyperNode", "Namespace", "ResourceQuota", "PodDisruptionBudget",
)  # fmt: skip
"""What is taken; a cluster begins empty, so its pods and jobs are left out."""


def read(text: str, name: str) -> tuple[list[Tree], list[str]]:
    """The objects, and notes about what was left out.  Raises InputError."""
    objects: list[Any] = []
    try:
        yamltext.check(text)
        for document in yaml.load_all(text, yamltext.Loader):
            if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
                objects += document.get("items") or []
            elif document is not None:
                objects.append(document)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        raise InputError.at(name, line, f"not YAML: {getattr(error, 'problem', error)}") from error
    left_out: dict[str, int] = {}
    taken: list[Tree] = []
    for number, one in enumerate(objects):
        kind = one.get("kind") if isinstance(one, dict) else None
        if not isinstance(kind, str):
            raise InputError(f"{name}: object {number + 1} has no kind; Node, Queue, ...")
        if kind in KINDS:
            taken.append(one)
        else:
            left_out[kind] = left_out.get(kind, 0) + 1
    if not of_kind(taken, "Node"):
        raise InputError(f"{name}: there is no Node in it")
    if not of_kind(taken, "Queue"):
        taken.append(queue("default"))
    notes = [f"{name}: {count} of kind {kind} left out" for kind, count in sorted(left_out.items())]
    return taken, notes
