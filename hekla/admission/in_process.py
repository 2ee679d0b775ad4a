"""The rules without a server around them, for an API server that asks them inside its own process.

`hekla up` names `reviewers` to the API server of its cluster.  What is decided and how it is worded
is the same as over HTTPS, because it is the same rules.  Only workloads come by the thousand;
queues and hypernodes are left to the daemon, and so are pods, because it writes events about those
that it refuses.  Decision 0230.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from hekla.admission.registry import ADMISSIONS, Admission, review
from hekla.admission.review import POD_LEVEL_RESOURCES_SINCE, Lookup, Patch, Settings, Tree

log = logging.getLogger(__name__)

WORKLOADS = frozenset({"jobs", "cronjobs", "jobflows", "podgroups"})

Answer = tuple[bool, str, Patch | None]
"""(whether the object is allowed, the errors, the patch)"""


class Reviewer:
    """The rules of one path."""

    def __init__(self, admission: Admission, lookup: Lookup, settings: Settings) -> None:
        self.admission = admission
        self.served = admission.key
        self.lookup = lookup
        self.settings = settings
        self.settled = admission.settled

    def __call__(
        self,
        resource: tuple[str, str, str],
        operation: str,
        object: Tree | None,
        old: Tree | None,
        name: str,
        namespace: str,
        /,
    ) -> Answer:
        path = self.admission.path
        if resource != self.served:
            return False, self.admission.expected_resource, None
        verdict = review(
            path, operation, object, old, self.lookup, self.settings, name=name, namespace=namespace
        )
        if not verdict.allowed:
            log.info("%s denied %s/%s: %s", path, namespace, name, verdict.message)
        return verdict.allowed, verdict.message, verdict.patch


def in_process_settings(minor: int) -> Settings:
    """The settings of a daemon without flags, beside an API server of this minor version."""
    return Settings(pod_level_resources=minor >= POD_LEVEL_RESOURCES_SINCE)


def reviewers(lookup: Lookup, minor: int) -> Mapping[str, Reviewer]:
    """The reviewers by the path under which the daemon serves the same rules."""
    settings = in_process_settings(minor)
    return {
        path: Reviewer(admission, lookup, settings)
        for path, admission in ADMISSIONS.items()
        if admission.resource in WORKLOADS
    }
