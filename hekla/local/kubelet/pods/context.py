"""What the parts of a pod's worker share: the newest pod object, what is known of the pod, and its
place on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hekla.api.kubernetes import core
from hekla.local.kubelet.host import Host
from hekla.local.kubelet.pods.statuses import PodView
from hekla.local.kubelet.records import PodDirectory


@dataclass(slots=True)
class PodContext:
    """One pod, to the parts of its worker."""

    host: Host
    pod: core.Pod
    """As the API server has shown it last; the worker alone replaces it."""
    view: PodView
    directory: PodDirectory
    wake: Callable[[], None]
    """Has the worker look at the pod again."""
    deleted: bool = False
    """The object is gone from the API server."""
    warned: set[tuple[str, str]] = field(default_factory=set)
    """(reason, message) of the warnings that were given once and are not repeated."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    def event(self, kind: str, reason: str, message: str, container: str = "") -> None:
        """Record an event, about a container of the pod where one is named."""
        path = f"spec.containers{{{container}}}" if container else ""
        if any(spec.name == container for spec in self.pod.spec.init_containers):
            path = f"spec.initContainers{{{container}}}"
        self.host.recorder.event(
            self.pod, "Warning" if kind == "Warning" else "Normal", reason, message, field_path=path
        )

    def warn_once(self, reason: str, message: str, container: str = "") -> None:
        """Record a warning, unless the same one was recorded before."""
        if (reason, message) not in self.warned:
            self.warned.add((reason, message))
            self.event("Warning", reason, message, container)
