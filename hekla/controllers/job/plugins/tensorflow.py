"""The tensorflow plugin: TF_CONFIG, by which the processes of a distributed run know each other
(reference: controllers 3.5)."""

from __future__ import annotations

import json

from hekla.api import batch
from hekla.controllers.job.plugins.hosts import check_length, host, letters, task_named
from hekla.controllers.job.plugins.plugin import Plugin, Tree, add_env, main_containers, variable
from hekla.controllers.job.pod_template import Slot

ROLES = ("ps", "worker", "chief", "evaluator")


class TensorFlow(Plugin):
    name = "tensorflow"
    defaults = {**{role: role for role in ROLES}, "port": 2222}

    def complete(self, job: batch.Job, task: batch.TaskSpec, pod: Tree, slot: Slot) -> None:
        if len(job.spec.tasks) == 1 and job.spec.tasks[0].replicas == 1:
            return  # a single process has no cluster
        port = self.arguments.number("port")
        cluster: dict[str, list[str]] = {}
        role_of_task = task.name
        for role in ROLES:
            named = self.arguments.text(role)
            if task.name == named:
                role_of_task = role
            member = task_named(job, named)
            if member is not None and member.replicas:
                entry = len(host(job.metadata.name, member, "")) + len(f'"",:{port}')
                check_length(
                    letters(member, entry),
                    member.replicas,
                    f"TF_CONFIG with the hosts of task {named}",
                )
                cluster[role] = [
                    f"{host(job.metadata.name, member, index)}:{port}"
                    for index in range(member.replicas)
                ]
        described = json.dumps(
            {"cluster": cluster, "task": {"type": role_of_task, "index": slot.index}},
            separators=(",", ":"),
        ).replace(f'"{slot.index}"', slot.index)  # the index is a number there, not text
        for container in main_containers(pod):
            add_env(container, variable("TF_CONFIG", described))
