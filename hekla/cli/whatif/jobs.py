"""A Job as its PodGroup and pods, made by the job controller's own functions, without a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hekla.api import batch, scheduling
from hekla.api.text.times import stamp
from hekla.api.trees import Json, Tree
from hekla.controllers.job.layout import Layout
from hekla.controllers.job.plan import View, plan
from hekla.controllers.job.plugins.plugin import PluginError
from hekla.controllers.job.podgroup import group_body
from hekla.simulator.whatif.changes import with_priority


def parts_of(tree: Tree, classes: Mapping[str, Tree], now: float) -> tuple[Json, list[Json]]:
    """The PodGroup of a Job, which waits to be let in, and the pods that come once it is.

    `classes`: the cluster's PriorityClasses by name.  Raises ValueError when a plugin cannot serve
    the job.
    """
    job: batch.Job = batch.JOB.decode(msgspec.json.encode(tree))
    values = {name: int(one.get("value") or 0) for name, one in classes.items()}
    layout = Layout()
    try:
        layout.update(
            job, lambda name: values.get(name, 0), priorities=len(values), forwarded=False
        )
    except PluginError as error:
        raise ValueError(f"job {job.metadata.name}: {error}") from error
    group = group_body(job, layout.group_spec)
    let_in: scheduling.PodGroup = scheduling.POD_GROUP.decode(
        msgspec.json.encode({**group, "status": {"phase": "Inqueue"}})
    )
    made = plan(View(job, {}, let_in, now))
    moment = stamp(now)
    group["metadata"] |= {"uid": f"{job.metadata.uid}-group", "creationTimestamp": moment}
    group["status"] = {"phase": "Pending"}
    default = next((name for name, one in classes.items() if one.get("globalDefault")), "")
    pods = [
        _admitted(layout.templates[task.name].pod(index), moment, values, default)
        for task, index in made.create
    ]
    return group, pods


def _admitted(pod: Json, moment: str, values: Mapping[str, int], default: str) -> Json:
    """The pod as the API server would fill it in, as far as schedulers mind."""
    meta: dict[str, Any] = pod["metadata"]
    meta |= {"uid": f"{meta['namespace']}-{meta['name']}", "creationTimestamp": moment}
    pod["status"] = {"phase": "Pending"}
    called = pod["spec"].get("priorityClassName") or default
    return with_priority(pod, called, values.get(called, 0)) if called else pod
