"""The options of a delete: from its body, its query, or the body of an eviction."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from hekla.api.text.fieldrules import Errors
from hekla.api.trees import Json
from hekla.local.apiserver.objects.encoding.decode import reader
from hekla.local.apiserver.request.call import Call, decode_body
from hekla.local.apiserver.request.status import Refusal, bad_request, invalid_option

BODY = reader("meta.k8s.io", "v1", "DeleteOptions", any_version=True)
UNRECOGNIZED = "the object provided is unrecognized (must be of type DeleteOptions): "


class DeleteOptions(msgspec.Struct, frozen=True):
    """The options of a delete, from the query or the body."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    version: str = ""


def read_options(call: Call) -> DeleteOptions:
    """Read the options from the body if there is one, else from the query."""
    request = call.request
    body: Json = {}
    if request.body:
        body = decode_options(call)
    grace: Any = body.get("gracePeriodSeconds")
    if grace is None and request.option("gracePeriodSeconds"):
        try:
            grace = int(request.option("gracePeriodSeconds"))
        except ValueError as error:
            raise bad_request(
                f'strconv.ParseInt: parsing "{request.option("gracePeriodSeconds")}": invalid syntax'
            ) from error
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise bad_request(
            "json: cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
        )
    propagation: Any = body.get("propagationPolicy") or request.option("propagationPolicy")
    orphan: Any = body.get("orphanDependents")
    if orphan is None and request.option("orphanDependents"):
        orphan = request.flag("orphanDependents")
    errors = Errors()
    if orphan is not None and propagation:
        why = "orphanDependents and deletionPropagation cannot be both set"
        errors.invalid("propagationPolicy", propagation, why)
    elif propagation and propagation not in ("Orphan", "Background", "Foreground"):
        allowed = ["Foreground", "Background", "Orphan", "nil"]
        errors.not_supported("propagationPolicy", propagation, allowed)
    dry_run = body.get("dryRun")
    if dry_run:
        if dry_run != ["All"]:
            errors.not_supported("dryRun", dry_run, ["All"])
        call.dry_run = True
    if errors:
        raise invalid_option("DeleteOptions", errors)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    wanted = body.get("preconditions") or {}
    return DeleteOptions(
        grace, propagation or "", wanted.get("uid") or "", wanted.get("resourceVersion") or ""
    )


def _unread(text: str) -> str:
    """The error message for options that cannot be read.  Unlike that of an object, it does not
    name the kind that was expected."""
    if text.startswith(UNRECOGNIZED):
        return text.removeprefix(UNRECOGNIZED).rpartition(" (")[0]
    why = text.rpartition("cannot be handled as a DeleteOptions: ")[2]
    other = re.match(r"converting \((\w+)\.(\w+)\) to ", why)
    return (
        f'no kind "{other[2]}" is registered for version "{other[1]}" in scheme "pkg/runtime/scheme.go:111"'
        if other
        else why
    )


def decode_options(call: Call) -> Json:
    try:
        tree = decode_body(call, BODY)
    except Refusal as refusal:
        raise Refusal(refusal.code, _unread(str(refusal))) from refusal
    if not isinstance(tree.get("preconditions") or {}, dict):
        raise bad_request(
            "json: cannot unmarshal array into Go struct field DeleteOptions.preconditions of type v1.Preconditions"
        )
    return tree


def options_of(tree: Json) -> DeleteOptions:
    """The options in the body of an eviction."""
    wanted = tree.get("preconditions") or {}
    return DeleteOptions(
        tree.get("gracePeriodSeconds"),
        tree.get("propagationPolicy") or "",
        wanted.get("uid") or "",
        wanted.get("resourceVersion") or "",
    )


def options_tree(call: Call, options: DeleteOptions) -> Json:
    """The options as webhooks get them."""
    tree: Json = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    if options.grace is not None:
        tree["gracePeriodSeconds"] = options.grace
    if options.propagation:
        tree["propagationPolicy"] = options.propagation
    if call.dry_run:
        tree["dryRun"] = ["All"]
    return tree
