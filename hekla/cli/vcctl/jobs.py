"""`vcctl job`, and the short forms that act on jobs.  Reference: cli 2, 7."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any

from hekla.api import batch, bus
from hekla.api.kinds import Kind
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.connection import Api, Tree, find, name_of
from hekla.cli.vcctl.explain import group_of
from hekla.cli.vcctl.jobtable import phase, table
from hekla.cli.vcctl.jobview import events_text, job_text
from hekla.cli.vcctl.output import is_wide, printed
from hekla.cli.vcctl.startestimate import estimate_of
from hekla.kube.objects import controller_reference

JOB = batch.JOB.untyped
COMMAND = bus.COMMAND.untyped


async def run(api: Api, invocation: Invocation) -> None:
    file = invocation.text("filename") if "filename" in invocation.values else ""
    if not invocation.text("name") and not file:
        raise CommandError("job name cannot be left blank")
    requests, limits = (
        resource_list(invocation.text("requests")),
        resource_list(invocation.text("limits")),
    )
    job = job_from_file(file) if file else job_from_flags(invocation, requests, limits)
    if wanted := invocation.text("dry-run") if "dry-run" in invocation.values else "":
        from hekla.cli.vcctl.whatif import dry_run

        await dry_run(api, invocation, job, wanted)
        return
    created = await api.create(JOB, job, invocation.text("namespace"))
    print(f"run job {created['metadata']['name']} successfully")


def resource_list(text: str) -> dict[str, str]:
    """`name=quantity,...` as a mapping; empty for an empty text.  Reference: cli 1.6."""
    from hekla.api.text import quantity

    amounts: dict[str, str] = {}
    for part in text.split(",") if text else []:
        pieces = part.split("=")
        if len(pieces) != 2:
            raise CommandError(f"invalid argument syntax {part}, expected <resource>=<value>")
        try:
            quantity.milli(pieces[1])
        except ValueError as error:
            raise CommandError(str(error)) from error
        amounts[pieces[0]] = pieces[1]
    return amounts


def job_from_file(file: str) -> Tree:
    if ".yaml" not in file and ".yml" not in file:
        raise CommandError("only support yaml file")
    try:
        with open(file, encoding="utf-8") as stream:
            content = stream.read()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"failed to read file, err: {open_error(file, error)}") from error
    import yaml

    from hekla.api.text import yamltext

    try:
        job = yamltext.load(content)
    except yaml.YAMLError as error:
        raise CommandError(f"failed to unmarshal file, err:  {error}") from error
    if not isinstance(job, dict):
        raise CommandError("failed to unmarshal file, err:  the document is no mapping")
    return {"apiVersion": JOB.api_version, "kind": JOB.kind, **job}


def open_error(file: str, error: Exception) -> str:
    reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
    return f"open {file}: {reason}"


def job_from_flags(
    invocation: Invocation, requests: dict[str, str], limits: dict[str, str]
) -> Tree:
    name = invocation.text("name")
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    container: Tree = {
        "name": name,
        "image": invocation.text("image"),
        "imagePullPolicy": "IfNotPresent",
        "resources": resources,
    }
    words = command_words(invocation.text("command")) if "command" in invocation.values else []
    if words:
        container["command"] = words
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {"name": name, "namespace": invocation.text("namespace")},
        "spec": {
            "minAvailable": invocation.number("min"),
            "schedulerName": invocation.text("scheduler"),
            "tasks": [
                {
                    "replicas": invocation.number("replicas"),
                    "template": {
                        "metadata": {"name": name, "labels": {"job.volcano.sh": name}},
                        "spec": {"restartPolicy": "Never", "containers": [container]},
                    },
                }
            ],
        },
    }


def command_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise CommandError(f"the command cannot be split into words: {error}") from error


async def list_jobs(api: Api, invocation: Invocation) -> None:
    if invocation.on("watch"):
        await _watch(api, invocation)
        return
    jobs = await _listed(api, invocation)
    if not printed(invocation, JOB, jobs):
        _print_table(jobs, jobs, invocation)


async def _listed(api: Api, invocation: Invocation) -> list[Tree]:
    everywhere = invocation.on("all-namespaces")
    listing = await api.list(JOB, None if everywhere else invocation.text("namespace"))
    return [job for job in listing.items if _wanted(job, invocation)]


def _wanted(job: Tree, invocation: Invocation) -> bool:
    spec = job.get("spec") or {}
    queue = str(invocation.values.get("queue", ""))
    scheduler, fragment = invocation.text("scheduler"), invocation.text("selector")
    return (
        (not queue or spec.get("queue") == queue)
        and (not scheduler or spec.get("schedulerName") == scheduler)
        and fragment in job["metadata"]["name"]
    )


def _print_table(shown: Sequence[Tree], measured: Sequence[Tree], invocation: Invocation) -> None:
    if not measured:
        print("No resources found")
        return
    wide = "output" in invocation.values and is_wide(invocation)
    print("\n".join(table(shown, measured, namespaces=invocation.on("all-namespaces"), wide=wide)))


async def _watch(api: Api, invocation: Invocation) -> None:
    """Print the table again when one of its jobs changes, at most twice a second."""
    namespace = None if invocation.on("all-namespaces") else invocation.text("namespace")
    while True:
        listing = await api.list(JOB, namespace)
        jobs = [job for job in listing.items if _wanted(job, invocation)]
        if not printed(invocation, JOB, jobs):
            _print_table(jobs, jobs, invocation)
        print(flush=True)
        async for event in api.watch(
            JOB, namespace, resource_version=listing.resource_version, bookmarks=False
        ):
            if event.type in ("ADDED", "MODIFIED", "DELETED"):
                break
        await asyncio.sleep(0.5)


async def view(api: Api, invocation: Invocation) -> None:
    name = name_of(
        invocation, "job name (specified by --name or -N) is mandatory to view a particular job"
    )
    job = await find(api, JOB, name, invocation.text("namespace"))
    if not printed(invocation, JOB, [job], single=True):
        await _print_view(api, job, conditions=True)


async def _print_view(api: Api, job: Tree, *, conditions: bool) -> None:
    waits = phase(job) in ("", "Pending")
    estimate = estimate_of(await group_of(api, job)) if waits else None
    text = job_text(job, conditions=conditions, estimate=estimate)
    print(text + await events_text(api, job), end="")


async def vjobs(api: Api, invocation: Invocation) -> None:
    """List jobs, or view one.  Widths come from all jobs of the answer; the header is printed even
    without rows."""
    if invocation.text("name"):
        job = await find(api, JOB, invocation.text("name"), invocation.text("namespace"))
        await _print_view(api, job, conditions=False)
        return
    listing = await api.list(
        JOB, None if invocation.on("all-namespaces") else invocation.text("namespace")
    )
    _print_table(
        [job for job in listing.items if _wanted(job, invocation)], listing.items, invocation
    )


async def _command(verb: str, action: str, api: Api, invocation: Invocation) -> None:
    name = name_of(invocation, f"job name is mandatory to {verb} a particular job")
    job = await find(api, JOB, name, invocation.text("namespace"))
    await api.create(COMMAND, command_for(job, JOB, action), job["metadata"]["namespace"])


def command_for(target: Tree, kind: Kind[Any], action: str, namespace: str = "") -> Tree:
    """The Command that asks a controller to act on an object, which owns it."""
    name = target["metadata"]["name"]
    reference = controller_reference(kind, name, target["metadata"].get("uid", ""))
    metadata: dict[str, Any] = {
        "generateName": f"{name}-{action.lower()}-",
        "namespace": namespace or target["metadata"].get("namespace", ""),
        "ownerReferences": [reference],
    }
    return {
        "apiVersion": COMMAND.api_version,
        "kind": COMMAND.kind,
        "metadata": metadata,
        "action": action,
        "target": reference,
    }


async def _delete(verb: str, api: Api, invocation: Invocation) -> None:
    name = name_of(invocation, f"job name is mandatory to {verb} a particular job")
    await api.delete(JOB, name, invocation.text("namespace"))
    print(f"{verb} job {name} successfully")


suspend, resume = partial(_command, "suspend", "AbortJob"), partial(_command, "resume", "ResumeJob")
delete, cancel = partial(_delete, "delete"), partial(_delete, "cancel")
