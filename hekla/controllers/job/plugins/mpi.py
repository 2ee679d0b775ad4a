"""The mpi plugin: the master learns its workers' names (reference: controllers 3.7).  Logging in is
the ssh plugin's."""

from __future__ import annotations

from hekla.api import batch
from hekla.controllers.job.plugins.hosts import hosts, task_named
from hekla.controllers.job.plugins.plugin import (
    Plugin,
    Tree,
    add_env,
    add_port,
    all_containers,
    variable,
)
from hekla.controllers.job.pod_template import Slot


class Mpi(Plugin):
    name = "mpi"
    defaults = {"master": "master", "worker": "worker", "port": 22}

    def complete(self, job: batch.Job, task: batch.TaskSpec, pod: Tree, slot: Slot) -> None:
        variables: list[Tree] = []
        if task.name == self.arguments.text("master"):
            worker = task_named(job, self.arguments.text("worker"))
            if worker is None:
                return
            variables.append(variable("MPI_HOST", ",".join(hosts(job.metadata.name, worker))))
        for container in all_containers(pod):
            add_env(container, *variables)
            add_port(container, "mpijob-port", self.arguments.number("port"))
