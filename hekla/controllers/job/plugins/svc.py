"""The svc plugin: a name for every pod and a file and variables that list them (reference:
controllers 3.3).

A headless Service named like the job makes `<pod>.<job>` resolve, a ConfigMap `<job>-svc` lists the
hosts of every task, a NetworkPolicy lets only the job's own pods in.
"""

from __future__ import annotations

from hekla.api import batch, names
from hekla.api.kubernetes import core, networking
from hekla.api.sizes import MOST_TASKS
from hekla.controllers.job.plugins.hosts import check_length, host, hosts, letters, pod_spec
from hekla.controllers.job.plugins.plugin import (
    Dependent,
    Plugin,
    PluginError,
    Tree,
    add_env,
    add_mount,
    add_volume,
    all_containers,
    object_meta,
)
from hekla.controllers.job.pod_template import Slot

MOUNT_PATH = "/etc/volcano"


class Svc(Plugin):
    name = "svc"
    defaults = {
        "publish-not-ready-addresses": False,
        "disable-network-policy": False,
        "inject-hosts-env": True,
    }

    def dependents(self, job: batch.Job) -> list[Dependent]:
        name = job.metadata.name
        wanted = [
            Dependent(
                core.CONFIG_MAP,
                config_map_name(job),
                make=lambda: {
                    "metadata": object_meta(job, config_map_name(job)),
                    "data": host_lists(job),
                },
                outdated=lambda existing: existing.get("data") != host_lists(job),
                follows_scale=True,
            ),
            Dependent(core.SERVICE, name, make=lambda: self._service(job)),
        ]
        if not self.arguments.flag("disable-network-policy"):
            wanted.append(
                Dependent(networking.NETWORK_POLICY, name, make=lambda: _network_policy(job))
            )
        return wanted

    def complete(self, job: batch.Job, task: batch.TaskSpec, pod: Tree, slot: Slot) -> None:
        spec = pod["spec"]
        spec["hostname"] = spec.get("hostname") or pod["metadata"]["name"]
        spec["subdomain"] = spec.get("subdomain") or job.metadata.name
        config_map = config_map_name(job)
        if len(job.spec.tasks) > MOST_TASKS and self.arguments.flag("inject-hosts-env"):
            raise PluginError(
                f"every container would get variables for {len(job.spec.tasks)} tasks, and {MOST_TASKS} is the most: "
                "say --inject-hosts-env=false"
            )
        variables = [
            {"name": name, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": name}}}
            for other in job.spec.tasks
            for name in (f"VC_{_upper(other)}_HOSTS", f"VC_{_upper(other)}_NUM")
        ]
        for container in all_containers(pod):
            if self.arguments.flag("inject-hosts-env"):
                add_env(container, *variables)
            add_mount(container, {"name": config_map, "mountPath": MOUNT_PATH})
        add_volume(pod, {"name": config_map, "configMap": {"name": config_map}})

    def _service(self, job: batch.Job) -> Tree:
        return {
            "metadata": object_meta(job, job.metadata.name),
            "spec": {
                "clusterIP": "None",
                "selector": own_pods(job),
                "publishNotReadyAddresses": self.arguments.flag("publish-not-ready-addresses"),
            },
        }


def config_map_name(job: batch.Job) -> str:
    return names.service_config_map(job.metadata.name)


def own_pods(job: batch.Job) -> dict[str, str]:
    """The labels that select the pods of a job."""
    return {names.JOB_NAME: job.metadata.name, names.JOB_NAMESPACE: job.metadata.namespace}


def host_lists(job: batch.Job) -> dict[str, str]:
    """The data of the ConfigMap: for each task a file of hosts, and the two variables."""
    data: dict[str, str] = {}
    length = sum(
        letters(task, len(host(job.metadata.name, task, "")) + 1)
        for task in job.spec.tasks
        if not pod_spec(task).get("hostname")
    )
    check_length(
        2 * length,
        sum(task.replicas for task in job.spec.tasks),
        f"ConfigMap {config_map_name(job)} with the job's hosts",
    )
    for task in job.spec.tasks:
        found = hosts(job.metadata.name, task)
        data[f"{task.name.replace('-', '_')}.host"] = "\n".join(found)
        data[f"VC_{_upper(task)}_HOSTS"] = ",".join(found)
        data[f"VC_{_upper(task)}_NUM"] = str(len(found))
    return data


def _upper(task: batch.TaskSpec) -> str:
    return task.name.replace("-", "_").upper()


def _network_policy(job: batch.Job) -> Tree:
    return {
        "metadata": object_meta(job, job.metadata.name),
        "spec": {
            "podSelector": {"matchLabels": own_pods(job)},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": {"matchLabels": own_pods(job)}}]}],
        },
    }
