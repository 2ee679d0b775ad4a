"""The hcclrank plugin: the rank of a pod among Ascend devices, as an annotation (reference:
controllers 3.9)."""

from __future__ import annotations

from hekla.api import batch, names
from hekla.controllers.job.plugins.hosts import task_named
from hekla.controllers.job.plugins.plugin import Plugin, Tree, main_containers
from hekla.controllers.job.pod_template import Slot


class HcclRank(Plugin):
    name = "hcclrank"
    defaults = {"master": "master", "worker": "worker"}

    def complete(self, job: batch.Job, task: batch.TaskSpec, pod: Tree, slot: Slot) -> None:
        annotations = pod["metadata"]["annotations"]
        if annotations.get(names.HCCL_RANK_INDEX):
            return
        rank = _rank_variable(pod) or self._computed(job, task, slot)
        if rank:
            annotations[names.HCCL_RANK_INDEX] = rank

    def _computed(self, job: batch.Job, task: batch.TaskSpec, slot: Slot) -> str:
        if task.name == self.arguments.text("master"):
            return slot.index
        if task.name == self.arguments.text("worker"):
            master = task_named(job, self.arguments.text("master"))
            return slot.plus(master.replicas if master else 0)
        return ""


def _rank_variable(pod: Tree) -> str:
    for container in main_containers(pod):
        for entry in container.get("env") or ():
            if entry.get("name") == "RANK":
                return str(entry.get("value") or "")
    return ""
