"""`vcctl job explain --what-if` and `vcctl job run --dry-run=schedule`: a question to a copy of what the
scheduler knows.  Hekla's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hekla.api import batch
from hekla.cli.vcctl.command import CommandError, Invocation
from hekla.cli.vcctl.connection import Api, Tree
from hekla.cli.vcctl.output import FORMATS, document
from hekla.cli.vcctl.snapshots import snapshot

if TYPE_CHECKING:
    from hekla.engine.framework.policy import Policy
    from hekla.simulator.whatif.answer import Answer
    from hekla.simulator.whatif.copy import ClusterCopy

JOB = batch.JOB.untyped
SCHEDULE = "schedule"


async def explain_changed(
    api: Api, invocation: Invocation, job: Tree, texts: Sequence[str]
) -> None:
    """What would become of a job if these changes were made."""
    from hekla.simulator.whatif.answer import ask
    from hekla.simulator.whatif.changes import ChangeError, group_named, read_changes

    _form(invocation)
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    try:
        changes = read_changes(list(texts), namespace)
        copy = await snapshot(api, invocation)
        told = [line for change in changes for line in change.apply(copy)]
    except ChangeError as error:
        raise CommandError(str(error)) from error
    key = group_named(copy, name, namespace)
    if key is None:
        raise CommandError(
            f"job {name} has no PodGroup that the scheduler knows, so there is nothing to schedule"
        )
    files = [change.policy for change in changes if change.policy]
    policy = _policy(copy, invocation, files[-1] if files else "")
    if not copy.pods_of(key):
        _put_pods(copy, _parts(job, copy)[1])
    _print(invocation, name, ask(copy, policy, key), told, copy.now)


async def dry_run(api: Api, invocation: Invocation, job: Tree, wanted: str) -> None:
    """Where and when a job would start, and who would have to go, before it is there."""
    from hekla.engine.model.reading import key_of
    from hekla.simulator.whatif.answer import ask

    if wanted != SCHEDULE:
        raise CommandError(f'--dry-run = "{wanted}": "{SCHEDULE}" is the only one that there is')
    _form(invocation)
    admitted = await api.create(JOB, job, invocation.text("namespace"), dry_run=True)
    copy = await snapshot(api, invocation)
    policy = _policy(copy, invocation, "")
    group, pods = _parts(admitted, copy)
    copy.put("PodGroup", group)
    _put_pods(copy, pods)
    answer = ask(copy, policy, key_of(group))
    _print(invocation, admitted["metadata"]["name"], answer, [], copy.now)


def _put_pods(copy: ClusterCopy, pods: Sequence[Tree]) -> None:
    for pod in pods:
        copy.put("Pod", pod)


def _form(invocation: Invocation) -> None:
    """Refuse an output that there is not, before anything is asked."""
    wanted = invocation.text("output")
    if wanted not in ("", "table", "json", "yaml"):
        known = "table, json, yaml" if wanted in FORMATS else ", ".join(FORMATS)
        raise CommandError(f'unknown output format "{wanted}", valid formats are {known}')


def _parts(job: Tree, copy: ClusterCopy) -> tuple[Tree, Sequence[Tree]]:
    from hekla.cli.whatif.jobs import parts_of

    try:
        return parts_of(job, copy.of_kind("PriorityClass"), copy.now)
    except ValueError as error:
        raise CommandError(str(error)) from error


def _policy(copy: ClusterCopy, invocation: Invocation, file: str) -> Policy:
    from hekla.cli.whatif.policies import PolicyProblem, policy_in, policy_of

    try:
        return policy_in(file) if file else policy_of(copy, invocation.on("run-plugins"))
    except PolicyProblem as error:
        raise CommandError(str(error)) from error


def _print(
    invocation: Invocation, name: str, answer: Answer, told: Sequence[str], moment: float
) -> None:
    from hekla.cli.whatif.words import document_of, lines

    form = invocation.text("output")
    if form in ("json", "yaml"):
        print(document(document_of(name, answer, told, moment), form), end="")
        return
    print("\n".join(lines(name, answer, told, moment)))
