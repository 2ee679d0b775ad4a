"""What a job's spec comes to before any pod is made: its plugins, the templates of its pods, and
the spec of its PodGroup.

All of it is derived, and kept until what it was made from has changed: encoding the templates of a
job costs more than a reconcile that finds nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hekla.api import batch
from hekla.controllers.job.plugins import Plugin, plugins_of
from hekla.controllers.job.pod_template import BodyTemplate
from hekla.controllers.job.podgroup import PriorityOf, live_spec
from hekla.controllers.job.pods import template_of


@dataclass(slots=True)
class Layout:
    """The layout of one job; empty until `update` is called."""

    plugins: list[Plugin] = field(default_factory=list)
    templates: dict[str, BodyTemplate] = field(default_factory=dict)
    """Of pods, by task."""
    group_spec: dict[str, Any] = field(default_factory=dict)
    """The part of the PodGroup's spec that follows the job."""
    group_seen: tuple[object, ...] = ()
    """(uid, generation) of the PodGroup that was last found to be as `group_spec` says."""
    plugin_objects_at: int = -1
    """The generation of the job whose plugin objects were written last."""
    _made_from: tuple[object, ...] = ()

    def update(
        self, job: batch.Job, priority_of: PriorityOf, *, priorities: int, forwarded: bool
    ) -> None:
        """Rebuild the layout where what it was made from has changed.  `priorities` counts the
        priority classes that there are.  Raises PluginError."""
        made_from = (
            job.metadata.generation,
            job.status.version,
            job.status.retry_count,
            forwarded,
            priorities,
        )
        if self._made_from == made_from and self.templates:
            return
        self.plugins = plugins_of(job)
        self.templates = {
            task.name: template_of(job, task, self.plugins, forwarded=forwarded)
            for task in job.spec.tasks
        }
        self.group_spec = live_spec(job, priority_of)
        self.group_seen = ()
        self._made_from = made_from
