"""The env plugin: every container learns which replica it is (reference: controllers 3.2)."""

from __future__ import annotations

from hekla.api import batch, names
from hekla.controllers.job.plugins.plugin import Plugin, Tree, add_env, all_containers, variable
from hekla.controllers.job.pod_template import Slot


class Env(Plugin):
    """`VK_TASK_INDEX` and `VC_TASK_INDEX` in every container; there are no arguments."""

    name = "env"

    def complete(self, job: batch.Job, task: batch.TaskSpec, pod: Tree, slot: Slot) -> None:
        for container in all_containers(pod):
            add_env(
                container,
                *(
                    variable(name, slot.index)
                    for name in (names.ENV_TASK_INDEX_OLD, names.ENV_TASK_INDEX)
                ),
            )
