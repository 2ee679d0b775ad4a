"""The pytorch plugin: the rendezvous variables of torch.distributed (reference: controllers 3.6)."""

from __future__ import annotations

from hekla.api import batch
from hekla.controllers.job.plugins.hosts import host, task_named
from hekla.controllers.job.plugins.plugin import (
    Plugin,
    Tree,
    add_env,
    add_port,
    main_containers,
    variable,
)
from hekla.controllers.job.pod_template import Slot

WAIT_CONTAINER = "wait-for-master"


class PyTorch(Plugin):
    name = "pytorch"
    defaults = {
        "master": "master",
        "worker": "worker",
        "port": 23456,
        "wait-master-enabled": False,
        "wait-master-timeout": 300,
        "wait-master-image": "busybox:1.36.1",
    }

    def complete(self, job: batch.Job, task: batch.TaskSpec, pod: Tree, slot: Slot) -> None:
        master = task_named(job, self.arguments.text("master"))
        if master is None:
            return  # nobody to meet: the pods run as they are
        worker = task_named(job, self.arguments.text("worker"))
        port = self.arguments.number("port")
        address = host(job.metadata.name, master, 0)
        variables = [
            variable("MASTER_ADDR", address),
            variable("MASTER_PORT", str(port)),
            variable("WORLD_SIZE", str(master.replicas + (worker.replicas if worker else 0))),
        ]
        if task.name == master.name:
            variables.append(variable("RANK", "0"))
        elif worker is not None and task.name == worker.name:
            variables.append(variable("RANK", slot.plus(1)))
            self._wait_for(address, port, pod)
        for container in main_containers(pod):
            add_env(container, *variables)
            add_port(container, "pytorchjob-port", port)

    def _wait_for(self, address: str, port: int, pod: Tree) -> None:
        """Workers that start before the master would fail their first connection; an init container
        can wait instead."""
        waiting = pod["spec"].get("initContainers") or []
        if not self.arguments.flag("wait-master-enabled") or any(
            c.get("name") == WAIT_CONTAINER for c in waiting
        ):
            return
        timeout = self.arguments.number("wait-master-timeout")
        # An image has one of these: busybox its nc, others bash, which may not be their sh.
        script = (
            f"left={timeout}\n"
            f"until nc -z {address} {port} || (: </dev/tcp/{address}/{port}) || bash -c ': </dev/tcp/{address}/{port}'; do\n"
            f'  if [ "$left" -le 0 ]; then echo "{address}:{port} did not answer in {timeout} seconds"; exit 1; fi\n'
            "  left=$((left-2)); sleep 2\n"
            "done 2>/dev/null\n"
        )
        image = self.arguments.text("wait-master-image")
        pod["spec"]["initContainers"] = [
            *waiting,
            {"name": WAIT_CONTAINER, "image": image, "command": ["sh", "-c", script]},
        ]
