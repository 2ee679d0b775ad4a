"""Job: the checks of a new job.  Reference: api-and-admission 5.3.3.

Defaults are in `jobdefaults`.  Updates are in `jobupdates`: they are compared with the stored job,
and their messages differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hekla.admission.review import (
    BOTH_TIERS,
    ROOT_QUEUE,
    Review,
    Tree,
    both_tiers,
    name_of,
    queue_not_found,
    queue_state,
    spec_of,
)
from hekla.admission.rules import jobsizes, jobupdates, podtemplates, policies, walltimes
from hekla.admission.rules.fielderrors import invalid
from hekla.admission.rules.graph import sorted_tasks
from hekla.admission.rules.partitions import partition_problem
from hekla.admission.rules.syntax import listed
from hekla.api.text.syntax import dns_subdomain, qualified_name

PLUGINS = frozenset({"ssh", "env", "svc", "tensorflow", "mpi", "pytorch", "hcclrank", "ray"})

_WHOLE = re.compile(
    r"[+-]?(?:0[xX]_?[0-9a-fA-F](?:_?[0-9a-fA-F])*|0[bB]_?[01](?:_?[01])*|0[oO]?(?:_?[0-7])*|[1-9](?:_?[0-9])*)"
)
"""A whole number as flags take it."""

VOLUME_CONFLICT = (
    "conflict: If you want to use an existing PVC, just specify VolumeClaimName."
    "If you want to create a new PVC, you do not need to specify VolumeClaimName"
)


# -- what must hold --------------------------------------------------------------------------------


def validate(review: Review) -> str:
    return (
        jobupdates.problem(review)
        if review.operation == "UPDATE"
        else create_problems(review).strip()
    )


def create_problems(review: Review) -> str:
    """All errors of a new job, each with its own surrounding blanks."""
    spec = spec_of(review.object)
    tasks = spec.get("tasks") or []
    if not tasks:
        return "No task specified in job spec"
    too_large = jobsizes.problem(review)
    if too_large:
        return too_large
    arguments = (spec.get("plugins") or {}).get("mpi")
    if "mpi" in (spec.get("plugins") or {}) and mpi_master(arguments or []) not in {
        task.get("name") or "" for task in tasks
    }:
        return "The specified mpi master task was not found"
    return "".join(rule(review) for rule in CREATE_RULES)


def mpi_master(arguments: Sequence[str]) -> str:
    """The task that the mpi plugin's `--master` names.  Parsing stops at the first unknown flag or
    bad value."""
    master, index = "master", 0
    while index < len(arguments):
        flag, equals, value = arguments[index].partition("=")
        name = flag.removeprefix("-").removeprefix("-")
        if not flag.startswith("-") or name not in ("master", "worker", "port"):
            break
        if not equals:
            index += 1
            if index >= len(arguments):
                break
            value = arguments[index]
        if name == "port" and not _WHOLE.fullmatch(value):
            break
        if name == "master":
            master = value
        index += 1
    return master


def _topology(review: Review) -> str:
    return BOTH_TIERS if both_tiers(spec_of(review.object).get("networkTopology")) else ""


def scanned_tasks(tasks: Sequence[Tree]) -> tuple[Sequence[Tree], Tree | None]:
    """The tasks before the first repeated name, and the task that repeats it."""
    seen: set[str] = set()
    for index, task in enumerate(tasks):
        name = task.get("name") or ""
        if name in seen:
            return tasks[:index], task
        seen.add(name)
    return tasks, None


def _tasks(review: Review) -> str:
    tasks, repeated = scanned_tasks(spec_of(review.object)["tasks"])
    text = "".join(_task(review, task, index) for index, task in enumerate(tasks))
    if repeated is not None:
        text += _minimum(review, repeated) + f" duplicated task name {repeated.get('name') or ''};"
    return text


def _minimum(review: Review, task: Tree) -> str:
    minimum = task.get("minAvailable")
    if minimum is not None and minimum > (task.get("replicas") or 0):
        return f" 'minAvailable' is greater than 'replicas' in task: {task.get('name') or ''}, job: {name_of(review.object)};"
    return ""


def _task(review: Review, task: Tree, index: int) -> str:
    job, name = name_of(review.object), task.get("name") or ""
    text = _minimum(review, task) + policies.problems(
        task.get("policies") or [], "spec.tasks.policies"
    )
    pod = f"{job}-{name}-{index}"
    errors = qualified_name(pod)
    if errors:
        text += f"create pod with name {pod} validate failed {listed(errors)};"
    template = podtemplates.problems(
        task.get("template") or {}, name, review.settings.pod_level_resources
    )
    if template:
        text += f"spec.task[{index}]." + "".join(f"{error}. " for error in template)
    else:
        text += numa_problem(task, index)
    return text + partition_problem(task, job)


def numa_problem(task: Tree, index: int) -> str:
    """An error if a task has a NUMA policy and a container without whole CPUs; containers are
    counted first, then init containers."""
    if (task.get("topologyPolicy") or "none") == "none":
        return ""
    pod = spec_of(task.get("template") or {})
    containers = [*(pod.get("containers") or []), *(pod.get("initContainers") or [])]
    for number, container in enumerate(containers):
        resources = container.get("resources") or {}
        cpu = (resources.get("requests") or resources.get("limits") or {}).get("cpu", 0)
        if not podtemplates.is_whole_cpu(cpu):
            return f"the cpu request isn't an integer in spec.task[{index}] container[{number}]."
    return ""


def _name(review: Review) -> str:
    job = name_of(review.object)
    errors = qualified_name(job)
    return f"create job with name {job} validate failed {listed(errors)}" if errors else ""


def metadata_is_well(job: Tree) -> bool:
    """Whether the job's name is valid, by itself and in the names of its pods, and its walltime: all
    that the rules read of its metadata."""
    name = name_of(job)
    pods = (
        f"{name}-{task.get('name') or ''}-{index}"
        for index, task in enumerate(spec_of(job).get("tasks") or [])
    )
    return not (qualified_name(name) or any(map(qualified_name, pods)) or walltimes.problem(job))


def _total(review: Review) -> str:
    spec = spec_of(review.object)
    tasks, repeated = scanned_tasks(spec["tasks"])
    counted = [*tasks, repeated] if repeated is not None else tasks
    if sum(task.get("replicas") or 0 for task in counted) < (spec.get("minAvailable") or 0):
        return " job 'minAvailable' should not be greater than total replicas in tasks;"
    return ""


def _policies(review: Review) -> str:
    return policies.problems(spec_of(review.object).get("policies") or [], "spec.policies")


def _estimate(review: Review) -> str:
    estimate = spec_of(review.object).get("runningEstimate")
    return (
        f" {invalid('spec.runningEstimate', estimate, policies.NO_DURATION)};"
        if estimate and not policies.is_duration(estimate)
        else ""
    )


def _plugins(review: Review) -> str:
    plugins = spec_of(review.object).get("plugins") or {}
    return "".join(
        f" unable to find job plugin: {plugin};" for plugin in plugins if plugin not in PLUGINS
    )


def _volumes(review: Review) -> str:
    paths: set[str] = set()
    for volume in spec_of(review.object).get("volumes") or []:
        path, name, claim = (
            volume.get("mountPath") or "",
            volume.get("volumeClaimName") or "",
            volume.get("volumeClaim"),
        )
        if not path:
            return " mountPath is required;"
        if path in paths:
            return f" duplicated mountPath: {path};"
        if claim is None and not name:
            return " either VolumeClaim or VolumeClaimName must be specified;"
        if claim is not None and name:
            return VOLUME_CONFLICT
        errors = dns_subdomain(name) if name else []
        if errors:
            return f"invalid VolumeClaimName {name} : {listed(errors)}"
        paths.add(path)
    return ""


def _queue(review: Review) -> str:
    name = spec_of(review.object).get("queue") or ""
    queue = review.lookup.queue(name)
    if queue is None:
        return f" unable to find job queue: {queue_not_found(name)};"
    state = queue_state(queue)
    text = ""
    if state != "Open":
        text = (
            f" can only submit job to queue with state `Open`, queue `{name}` status is `{state}`;"
        )
    if name == ROOT_QUEUE:
        return text + " can not submit job to root queue;"
    children = len(review.lookup.children(name))
    if children:
        text += f" can only submit job to leaf queue, queue `{name}` has {children} child queues;"
    return text


def _dependencies(review: Review) -> str:
    tasks = spec_of(review.object)["tasks"]
    if not any(task.get("dependsOn") is not None for task in tasks):
        return ""
    graph = {
        task.get("name") or "": (task.get("dependsOn") or {}).get("name") or [] for task in tasks
    }
    if sorted_tasks(graph) is None:
        return (
            " job has dependencies between tasks, but doesn't form a directed acyclic graph(DAG);"
        )
    return ""


def _walltimes(review: Review) -> str:
    found = [walltimes.problem(review.object)]
    for index, task in enumerate(spec_of(review.object)["tasks"]):
        found.append(
            walltimes.problem(task.get("template") or {}, at=f"spec.tasks[{index}].template.")
        )
    return "".join(f" {one};" for one in found if one)


CREATE_RULES: tuple[Callable[[Review], str], ...] = (
    _topology,
    _tasks,
    _name,
    _total,
    _policies,
    _estimate,
    _plugins,
    _volumes,
    _queue,
    _dependencies,
    _walltimes,
)
