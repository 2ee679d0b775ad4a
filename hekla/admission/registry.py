"""The table of admission paths: which kind, which operations, which functions, under which webhook
name.

Reference: api-and-admission 5.2.  Everything that differs between paths is a row here; the server,
the registration and the tests walk the table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from hekla.admission.review import Lookup, Patch, Review, Settings, Tree, Verdict, metadata_of
from hekla.admission.rules import (
    cronjobs,
    hypernodes,
    jobdefaults,
    jobflows,
    jobs,
    minimums,
    podgroups,
    pods,
    queues,
    reservations,
)
from hekla.api.text.quantity import QuantityError

log = logging.getLogger(__name__)

BATCH = "batch.volcano.sh", "v1alpha1"
SCHEDULING = "scheduling.volcano.sh", "v1beta1"
FLOW = "flow.volcano.sh", "v1alpha1"
TOPOLOGY = "topology.volcano.sh", "v1alpha1"
RESERVING = "scheduling.hekla.io", "v1alpha1"
CORE = "", "v1"


@dataclass(frozen=True, slots=True)
class Admission:
    """One path.  Exactly one of `mutate` and `validate` is set; `refused` is the message for an
    operation that the path does not serve."""

    path: str
    webhook: str
    group: str
    version: str
    operations: tuple[str, ...]
    refused: str
    mutate: Callable[[Review], Patch | None] | None = None
    validate: Callable[[Review], str] | None = None
    namespace_selector: bool = True
    side_effects: str = "NoneOnDryRun"
    settled: Callable[[Tree], bool] = lambda tree: False
    """Of a new object: whether what is said of it follows from its spec, its namespace and the
    cluster alone, because nothing is wrong with what the rules look at in its metadata.  No, where
    nobody has looked.
    """

    @property
    def resource(self) -> str:
        return self.path.split("/")[1]

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.version, self.resource

    @property
    def configuration(self) -> str:
        """The name of the webhook configuration for this path."""
        return "volcano-admission-service" + self.path.replace("/", "-")

    @property
    def expected_resource(self) -> str:
        return f"expect resource to be {self.group}/{self.version}, Resource={self.resource}"


def nothing_of_metadata(tree: Tree) -> bool:
    """`settled` of rules that never read metadata."""
    return True


C, CU, CUD = ("CREATE",), ("CREATE", "UPDATE"), ("CREATE", "UPDATE", "DELETE")
INVALID_CREATE = "invalid operation `{operation}`, expect operation to be `CREATE`"

ADMISSIONS = {
    admission.path: admission
    for admission in (
        Admission(
            "/jobs/mutate",
            "mutatejob.volcano.sh",
            *BATCH,
            CU,
            "expect operation to be 'CREATE' ",
            mutate=jobdefaults.mutate,
            settled=minimums.unmarked,
        ),
        Admission(
            "/jobs/validate",
            "validatejob.volcano.sh",
            *BATCH,
            CU,
            "expect operation to be 'CREATE' or 'UPDATE'",
            validate=jobs.validate,
            settled=jobs.metadata_is_well,
        ),
        Admission(
            "/cronjobs/validate",
            "validatecronjob.volcano.sh",
            *BATCH,
            CU,
            "expect operation to be 'CREATE' or 'UPDATE'",
            validate=cronjobs.validate,
        ),
        Admission(
            "/podgroups/mutate",
            "mutatepodgroup.volcano.sh",
            *SCHEDULING,
            C,
            INVALID_CREATE,
            mutate=podgroups.mutate,
            settled=nothing_of_metadata,
        ),
        Admission(
            "/podgroups/validate",
            "validatepodgroup.volcano.sh",
            *SCHEDULING,
            C,
            "unsupported operation {operation}",
            validate=podgroups.validate,
            settled=podgroups.metadata_is_well,
        ),
        Admission(
            "/queues/mutate",
            "mutatequeue.volcano.sh",
            *SCHEDULING,
            C,
            INVALID_CREATE,
            mutate=queues.mutate,
        ),
        Admission(
            "/queues/validate",
            "validatequeue.volcano.sh",
            *SCHEDULING,
            CUD,
            "invalid operation `{operation}`, expect operation to be `CREATE`, `UPDATE` or `DELETE`",
            validate=queues.validate,
        ),
        Admission(
            "/pods/mutate",
            "mutatepod.volcano.sh",
            *CORE,
            C,
            "expect operation to be 'CREATE' ",
            mutate=pods.mutate,
        ),
        Admission(
            "/pods/validate",
            "validatepod.volcano.sh",
            *CORE,
            C,
            "expect operation to be 'CREATE'",
            validate=pods.validate,
        ),
        Admission(
            "/hypernodes/validate",
            "validatehypernodes.volcano.sh",
            *TOPOLOGY,
            CU,
            "",
            validate=hypernodes.validate,
            namespace_selector=False,
            side_effects="None",
        ),
        Admission(
            "/reservations/mutate",
            "mutatereservation.hekla.io",
            *RESERVING,
            CU,
            "expect operation to be 'CREATE' or 'UPDATE'",
            mutate=reservations.mutate,
            namespace_selector=False,
            side_effects="None",
        ),
        Admission(
            "/reservations/validate",
            "validatereservation.hekla.io",
            *RESERVING,
            CU,
            "expect operation to be 'CREATE' or 'UPDATE'",
            validate=reservations.validate,
            namespace_selector=False,
            side_effects="None",
        ),
        Admission(
            "/jobflows/validate",
            "validatejob.volcano.sh",
            *FLOW,
            CU,
            "expect operation to be 'CREATE' or 'UPDATE'",
            validate=jobflows.validate,
        ),
    )
}


def review(
    path: str,
    operation: str,
    object: Tree | None,
    old_object: Tree | None,
    lookup: Lookup,
    settings: Settings,
    *,
    name: str = "",
    namespace: str = "",
) -> Verdict:
    """Run one request through the rules of `path`.  A delete has no object; then `name` counts."""
    admission = ADMISSIONS[path]
    if operation not in admission.operations:
        # An empty wording: the path lets operations through that it knows nothing about.
        return Verdict(not admission.refused, admission.refused.format(operation=operation))
    try:
        return _decide(
            admission,
            _request(operation, object or {}, old_object or {}, lookup, settings, name, namespace),
        )
    except QuantityError as error:
        return Verdict(False, error.wire)
    except MISSHAPEN as error:
        return _misshapen(admission, error)


MISSHAPEN = (AttributeError, KeyError, TypeError, ValueError)
"""The errors of reading a tree of another shape, such as a list instead of a mapping."""


def _request(
    operation: str,
    tree: Tree,
    old: Tree,
    lookup: Lookup,
    settings: Settings,
    name: str,
    namespace: str,
) -> Review:
    metadata = metadata_of(tree)
    name = name or metadata.get("name") or metadata_of(old).get("name") or ""
    return Review(
        operation, tree, old, name, namespace or metadata.get("namespace") or "", lookup, settings
    )


def _decide(admission: Admission, request: Review) -> Verdict:
    if admission.mutate is not None:
        return Verdict(True, patch=admission.mutate(request))
    assert admission.validate is not None
    message = admission.validate(request)
    return Verdict(not message, message)


def _misshapen(admission: Admission, error: Exception) -> Verdict:
    """The error of a mutator on an object that no schema has checked yet is ignored: the schema
    check that follows names the field and the right type."""
    log.warning(
        "%s cannot read the object: %r",
        admission.path,
        error,
        exc_info=log.isEnabledFor(logging.DEBUG),
    )
    if admission.mutate is not None:
        return Verdict(True)
    return Verdict(False, f"the object cannot be read: {error}")
