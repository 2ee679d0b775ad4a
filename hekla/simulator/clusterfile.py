"""A cluster as `kubectl get nodes,queues,podgroups,pods,jobs.batch.volcano.sh,priorityclasses -o yaml`
prints it: one List, or several documents; JSON too."""

from __future__ import annotations

import json
from typing import Any

import yaml

from hekla.api.text import yamltext
from hekla.api.trees import Tree
from hekla.simulator.snapshot import snapshot
from hekla.simulator.workload import InputError, Workload, of_kind, queue

KINDS = (
    "Node", "Queue", "PriorityClass", "HyperNode", "Namespace", "ResourceQuota", "PodDisruptionBudget",
    "Reservation",
    "Pod", "PodGroup", "Job",
)  # fmt: skip
"""What is taken; Jobs are those of batch.volcano.sh."""
_TIME = "tag:yaml.org,2002:timestamp"


class _Loader(yamltext.Loader):  # type: ignore[misc, valid-type]  # libyaml's where it is there
    """Leaves times as the texts that they are on the wire."""

    yaml_implicit_resolvers = {
        first: [(tag, form) for tag, form in given if tag != _TIME]
        for first, given in yamltext.Loader.yaml_implicit_resolvers.items()
    }


def read(text: str, name: str, default_duration: int | None = None) -> Workload:
    """The cluster with the jobs that run and wait in it (`snapshot`).  Raises InputError."""
    objects = _documents(text, name)
    left_out: dict[str, int] = {}
    taken: list[Tree] = []
    for number, one in enumerate(objects):
        kind = one.get("kind") if isinstance(one, dict) else None
        if not isinstance(kind, str):
            raise InputError(f"{name}: object {number + 1} has no kind; Node, Queue, ...")
        if kind not in KINDS or (kind == "Job" and not _volcano(one)):
            left_out[kind] = left_out.get(kind, 0) + 1
            continue
        taken.append(one)
    if not of_kind(taken, "Node"):
        raise InputError(f"{name}: there is no Node in it")
    if not of_kind(taken, "Queue"):
        taken.append(queue("default"))
    try:
        workload = snapshot(taken, default_duration=default_duration)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{name}: an object is not as the API would have it: {error!r}") from error
    workload.notes = [
        *(f"{name}: {count} of kind {kind} left out" for kind, count in sorted(left_out.items())),
        *(f"{name}: {note}" for note in workload.notes),
    ]
    return workload


def _documents(text: str, name: str) -> list[Any]:
    """The objects, those of Lists too."""
    try:
        if text.lstrip().startswith("{"):
            documents = [json.loads(text)]
        else:
            yamltext.check(text)
            documents = list(yaml.load_all(text, _Loader))
    except json.JSONDecodeError as error:
        raise InputError.at(name, error.lineno, f"not JSON: {error.msg}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        raise InputError.at(name, line, f"not YAML: {getattr(error, 'problem', error)}") from error
    objects: list[Any] = []
    for document in documents:
        if isinstance(document, dict) and str(document.get("kind", "")).endswith("List"):
            objects += document.get("items") or []
        elif document is not None:
            objects.append(document)
    return objects


def _volcano(job: Tree) -> bool:
    return str(job.get("apiVersion", "")).startswith("batch.volcano.sh/")
