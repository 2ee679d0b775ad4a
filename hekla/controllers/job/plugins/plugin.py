"""The interface of a job plugin: it may add to the pods of a job, and it may want further objects
for the job.

A plugin is a small class.  `complete` changes the template of a task once (never pod by pod: where
the index matters it writes the slot's marker), `dependents` lists the objects that live and die
with a run of the job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hekla.api import batch
from hekla.api.kinds import Kind
from hekla.controllers.job.plugins.arguments import Arguments, Value
from hekla.controllers.job.pod_template import Slot
from hekla.kube.objects import controller_reference

Tree = dict[str, Any]


class PluginError(Exception):
    """A plugin cannot do its work for this job; the text goes into the job's event."""


@dataclass(frozen=True, slots=True)
class Dependent:
    """An object that a plugin wants for the job.

    `make` builds it, and is called only when it is to be written (a key pair takes a while).
    `outdated` says whether an existing one has to be written again; None leaves it alone.
    `follows_scale` has it checked again whenever the job's spec changes, otherwise it is checked
    once a run.
    """

    kind: Kind[Any]
    name: str
    make: Callable[[], Tree]
    outdated: Callable[[Tree], bool] | None = None
    follows_scale: bool = False


class Plugin(ABC):
    """One entry of `spec.plugins`."""

    name: str
    defaults: Mapping[str, Value] = {}
    """The arguments that it takes, with their defaults."""

    def __init__(self, given: Sequence[str]) -> None:
        self.arguments = Arguments(self.defaults, given)

    def dependents(self, job: batch.Job) -> list[Dependent]:
        """The objects that have to exist while the job has pods."""
        return []

    @abstractmethod
    def complete(self, job: batch.Job, task: batch.TaskSpec, pod: Tree, slot: Slot) -> None:
        """Add to the pod of a task; `pod` is the plugin's own to change."""


def main_containers(pod: Tree) -> list[Tree]:
    return [
        container
        for container in pod["spec"].get("containers") or ()
        if isinstance(container, dict)
    ]


def all_containers(pod: Tree) -> Iterator[Tree]:
    """Main containers, then init containers."""
    yield from main_containers(pod)
    yield from (
        container
        for container in pod["spec"].get("initContainers") or ()
        if isinstance(container, dict)
    )


def add_env(container: Tree, *variables: Tree) -> None:
    if variables:
        container["env"] = [*(container.get("env") or ()), *variables]


def variable(name: str, value: str) -> Tree:
    return {"name": name, "value": value}


def add_port(container: Tree, name: str, port: int) -> None:
    """Declare a port unless one of that number is declared already."""
    ports = container.get("ports") or []
    if all(existing.get("containerPort") != port for existing in ports):
        container["ports"] = [*ports, {"name": name, "containerPort": port, "protocol": "TCP"}]


def add_volume(pod: Tree, volume: Tree) -> None:
    pod["spec"]["volumes"] = [*(pod["spec"].get("volumes") or ()), volume]


def add_mount(container: Tree, mount: Tree) -> None:
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), mount]


def object_meta(job: batch.Job, name: str) -> Tree:
    """Metadata of an object that goes when the job goes."""
    return {
        "name": name,
        "namespace": job.metadata.namespace,
        "ownerReferences": [owner_reference(job)],
    }


def owner_reference(job: batch.Job) -> Tree:
    """The controller reference to a job."""
    return controller_reference(batch.JOB, job.metadata.name, job.metadata.uid)
