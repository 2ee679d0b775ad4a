"""One authorized request: its user, route and options, and the warnings that go with the response."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec

from hekla.api.text.fieldrules import Errors
from hekla.api.trees import Json
from hekla.kube.http.server import Request, Response
from hekla.local.apiserver.auth.user import User
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.kind import Decoded, FieldError, Kind
from hekla.local.apiserver.request.forms import wanted
from hekla.local.apiserver.request.route import Route
from hekla.local.apiserver.request.status import Refusal, bad_request, invalid_option
from hekla.local.apiserver.storage.rows import Row, encode

Reader = Callable[[bytes, str, str], Decoded]
MOST_WARNINGS = 1000
LONGEST_WARNINGS, LONGEST_CUT = 4096, 256
"""Characters of all warnings together, and of each one if all together are too long; as in
Kubernetes."""
VALIDATIONS = ("Ignore", "Strict", "Warn")
OPTIONS_KIND = {
    "POST": "CreateOptions",
    "PUT": "UpdateOptions",
    "PATCH": "PatchOptions",
    "DELETE": "DeleteOptions",
}


class Call:
    """A request that was authenticated, authorized and routed."""

    __slots__ = (
        "dry_run",
        "field_manager",
        "field_validation",
        "request",
        "resource",
        "route",
        "user",
        "verb",
        "warnings",
    )

    def __init__(self, request: Request, route: Route, user: User, verb: str) -> None:
        self.request = request
        self.route = route
        self.resource = route.resource
        self.user = user
        self.verb = verb
        self.warnings: dict[str, None] = {}
        """A set of texts, in order."""
        self.dry_run = False
        self.field_validation = "Warn"
        self.field_manager = ""
        if request.query:
            self._read_options()

    def _read_options(self) -> None:
        request = self.request
        errors = Errors()
        dry_run = request.options.get("dryRun", [])
        if dry_run:
            if dry_run != ["All"] and any(value for value in dry_run):
                errors.not_supported("dryRun", dry_run, ["All"])
            else:
                self.dry_run = dry_run == ["All"]
        validation = request.option("fieldValidation")
        if validation:
            if validation not in VALIDATIONS:
                errors.not_supported("fieldValidation", validation, ["", *VALIDATIONS])
            self.field_validation = validation
        self.field_manager = request.option("fieldManager")
        if len(self.field_manager) > 128:
            errors.too_long("fieldManager", 128)
        if not self.field_manager.isprintable():
            shown = json.dumps(self.field_manager, ensure_ascii=False).replace("\\u00", "\\x")
            errors += [
                FieldError(
                    "fieldManager",
                    "FieldValueInvalid",
                    f"Invalid value: {shown}: invalid character U+{ord(sign):04X} (at position {position})",
                )
                for position, sign in enumerate(self.field_manager)
                if not sign.isprintable()
            ]
        if errors:
            raise invalid_option(OPTIONS_KIND.get(request.method, "Options"), errors)

    @property
    def manager(self) -> str:
        """The name under which managedFields record changes: the field manager, or the program in
        the User-Agent header."""
        if self.field_manager:
            return self.field_manager
        name = self.request.headers.get("user-agent", "").partition("/")[0]
        if not (name.isascii() and name.isprintable()):
            name = "".join(sign for sign in name if sign.isprintable())
        return name.encode()[:128].decode(errors="ignore") or "unknown"

    @property
    def media_type(self) -> str:
        """The media type of the body without parameters; JSON if absent."""
        content_type = self.request.headers.get("content-type", "")
        return content_type.partition(";")[0].strip().lower() or "application/json"

    def warn(self, text: str) -> None:
        if len(self.warnings) < MOST_WARNINGS:
            self.warnings[text] = None

    def annotate(self, name: str, value: str) -> None:
        """Add an annotation to the request's audit event."""
        if self.request.notes is None:
            self.request.notes = {}
        self.request.notes[name] = value

    def options_tree(self) -> Json:
        """The options as webhooks get them."""
        tree: Json = {
            "kind": OPTIONS_KIND.get(self.request.method, "CreateOptions"),
            "apiVersion": "meta.k8s.io/v1",
        }
        if self.dry_run:
            tree["dryRun"] = ["All"]
        if self.field_manager:
            tree["fieldManager"] = self.field_manager
        return tree

    def respond(self, status: int, body: bytes) -> Response:
        if not self.warnings:
            return Response(status, body)
        return Response(
            status,
            body,
            headers={"Warning": "\n".join(map(warning_header, shortened(list(self.warnings))))},
        )

    def respond_with(self, status: int, row: Row | None, tree: Json) -> Response:
        """The response that shows a written object, in the form that the client accepts.  Under dry
        run there is no row, and `tree` is the object."""
        form = wanted(self.request.headers, self.request.option("includeObject"))
        if row is None:
            return self.respond(status, encode(form.dry(self.resource, tree)))
        return self.respond(status, form.object(self.resource, row))


def shortened(warnings: list[str]) -> list[str]:
    """The warnings that fit into headers.  If all together are too long, each is cut and the last
    ones are dropped."""
    if sum(map(len, warnings)) <= LONGEST_WARNINGS:
        return warnings
    left, found = LONGEST_WARNINGS, []
    for text in warnings:
        if left <= 0:
            break
        found.append(text[:LONGEST_CUT])
        left -= len(found[-1])
    return found


def warning_header(text: str) -> str:
    """One Warning header, without characters that a header cannot hold."""
    clean = (
        "".join(sign if sign.isprintable() else " " for sign in text)
        .replace("\\", "\\\\")
        .replace('"', '\\"')
    )
    return f'299 - "{clean}"'


def decode_body(call: Call, reader: Reader | None = None) -> Json:
    """Decode the request's body as an object of the kind, or with the reader of a subresource.  The
    result has no kind and apiVersion.  Raises Refusal."""
    read = reader or call.route.kind.decode
    if read is None:
        raise Refusal(415, f"{call.route.kind.kind} cannot be written", details={})
    try:
        decoded = read(call.request.body, call.media_type, call.field_validation)
    except BadBody as error:
        raise Refusal(error.code, str(error), reason=error.reason, details=None) from error
    for text in decoded.warnings:
        call.warn(text)
    return untyped(decoded.tree)


def untyped(tree: Json) -> Json:
    tree.pop("kind", None)
    tree.pop("apiVersion", None)
    metadata = tree.get("metadata")
    if metadata is None:
        tree["metadata"] = {}
    elif not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    return tree


def refuse_other_kind(kind: Kind, new: Json) -> None:
    """Refuse a patch that changes the kind or apiVersion."""
    if kind.decode is not None:
        try:
            kind.decode(msgspec.json.encode(new), "application/json", "Ignore")
        except BadBody as error:
            raise Refusal(error.code, str(error), reason=error.reason) from error
    raise bad_request(
        f"the patch makes another kind of {kind.kind}: {new.get('apiVersion')}, Kind={new.get('kind')}"
    )


def read_again(call: Call, kind: Kind, new: Json, changed: frozenset[str] | None = None) -> Json:
    """Decode a patched object like a request body: check types, drop or refuse unknown fields.

    If `changed` is known, only these top-level fields are decoded.  The others come from the store
    and were decoded before.
    """
    if new.get("kind") != kind.kind or new.get("apiVersion") != kind.api_version:
        refuse_other_kind(kind, new)
    if kind.read_again is not None:
        part = (
            new
            if changed is None
            else {name: value for name, value in new.items() if name in changed}
        )
        try:
            decoded = kind.read_again(part, call.field_validation)
        except BadBody as error:
            raise Refusal(error.code, str(error), reason=error.reason) from error
        for text in decoded.warnings:
            call.warn(text)
        tree = decoded.tree
        if changed is not None:
            tree = {
                name: tree[name] if name in changed else value
                for name, value in new.items()
                if name not in changed or name in tree
            }
        new = tree
    new.pop("kind", None)
    new.pop("apiVersion", None)
    return new
