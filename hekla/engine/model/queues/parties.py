"""Whose a job is: its user, and the account that the user is below."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hekla.api.trees import Tree
from hekla.engine.model.annotations import ACCOUNT, USER
from hekla.engine.model.reading import texts
from hekla.engine.model.tasks import Job

UNKNOWN = "_unknown"


def namespace_of(job: Job) -> str:
    return job.namespace or UNKNOWN


def user_of(job: Job) -> str:
    """Who made the job: as its PodGroup says, else its namespace."""
    return job.annotations.get(USER) or namespace_of(job)


def account_of(job: Job, namespaces: Mapping[str, Tree]) -> str:
    """The account of the job's namespace, else that which it names: administrators write
    namespaces, everybody writes jobs.  A path, empty where there is none."""
    stated = marks_of(namespaces.get(job.namespace)).get(ACCOUNT)
    account = stated or job.annotations.get(ACCOUNT, "")
    return "/".join(part for part in account.split("/") if part)


def marks_of(namespace: Tree | None) -> Mapping[str, str]:
    """A Namespace's annotations."""
    try:
        return {} if namespace is None else texts(namespace.get("metadata") or {}, "annotations")
    except (AttributeError, ValueError):
        return {}


def paths(party: str) -> Iterable[str]:
    """A party and the accounts above it, the topmost first."""
    if "/" not in party:
        return (party,)
    parts = party.split("/")
    return ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
