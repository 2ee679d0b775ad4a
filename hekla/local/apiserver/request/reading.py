"""get and list, from the committed state."""

from __future__ import annotations

import base64
import json
import re
import string
from bisect import bisect_right
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hekla.api.text.fieldrules import Errors
from hekla.api.trees import Json
from hekla.kube.http.server import Request, Response
from hekla.local.apiserver.objects.encoding import documents
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.request.forms import Form, wanted
from hekla.local.apiserver.request.route import Route
from hekla.local.apiserver.request.selection import Selection, check_selectors, select
from hekla.local.apiserver.request.status import (
    Refusal,
    bad_request,
    expired,
    invalid_option,
    not_found,
    too_large_version,
)
from hekla.local.apiserver.storage.collection import Collection
from hekla.local.apiserver.storage.registry import Resource
from hekla.local.apiserver.storage.rows import Row
from hekla.local.apiserver.storage.store import Store

NUMBER = re.compile(r"[-+]?[0-9]+", re.ASCII).fullmatch
LONGEST_NUMBER = 100
"""The most digits of a number in a request.  Python refuses to parse thousands of them."""
BASE64 = string.ascii_letters + string.digits + "-_"
OLD_LIST = "The resourceVersion for the provided list is too old."
OLD_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the "
    "continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with "
    "the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


def version_option(request: Request) -> int:
    """The resourceVersion of a request; 0 if it has none."""
    text = request.option("resourceVersion")
    if not text:
        return 0
    if not text.isascii() or not text.isdigit():
        raise bad_request(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    if len(text) > LONGEST_NUMBER or int(text) >= 2**64:
        raise bad_request(
            f'strconv.ParseUint: parsing "{text[:LONGEST_NUMBER]}": value out of range'
        )
    return int(text)


def list_version(request: Request) -> int:
    """The resourceVersion of a list, whose errors have other words."""
    try:
        return version_option(request)
    except Refusal as error:
        shown = json.dumps(request.option("resourceVersion"), ensure_ascii=False)
        raise bad_request(
            f"invalid resource version: resourceVersion: Invalid value: {shown}: {error}"
        ) from None


async def at_least(store: Store, version: int) -> None:
    """Wait a moment for a version that the client has seen elsewhere.  Raises a Refusal with code
    504."""
    if version > store.committed and (
        version > store.version + 1000 or not await store.reached(version, 3.0)
    ):
        raise too_large_version(version, store.committed)


async def get(store: Store, request: Request, route: Route) -> Response:
    form = wanted(request.headers, request.option("includeObject"), route)
    if request.query:
        await at_least(store, version_option(request))
    row = route.resource.collection.rows.get(route.key)
    if row is None:
        raise not_found(route.kind, route.name)
    if route.kind.conversion is not None and form.versioned:
        await route.kind.conversion.ready([row])
    return Response(200, form.object(route.resource, row))


class Page:
    """A continue token: the key after which a list continues, and the version at which it began."""

    def __init__(self, version: int, start: str) -> None:
        self.version = version
        self.start = start

    @classmethod
    def parse(cls, token: str) -> Page:
        try:
            text = documents.json_tree(_from_base64(token))
            if not isinstance(text, dict) or text.get("v") != "meta.k8s.io/v1":
                raise BadBody("the token was not given by this server")
            version, start = text.get("rv"), text.get("start")
            if (
                not isinstance(version, int)
                or not isinstance(start, str)
                or not start.endswith("\0")
            ):
                raise BadBody("the token was not given by this server")
        except BadBody as error:
            raise bad_request(
                f"invalid continue token: continue key is not valid: {error}"
            ) from error
        return cls(version, start[:-1])

    def token(self) -> str:
        text = json.dumps(
            {"v": "meta.k8s.io/v1", "rv": self.version, "start": f"{self.start}\0"},
            separators=(",", ":"),
        )
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _from_base64(text: str) -> bytes:
    """Decode base64 without padding.  Raises BadBody with the position of an invalid character."""
    good = len(text) - len(text.lstrip(BASE64))
    if good < len(text) or len(text) % 4 == 1:
        raise BadBody(
            f"illegal base64 data at input byte {good if good < len(text) else len(text) - 1}"
        )
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def check_numbers(request: Request) -> None:
    """Check the numbers in the options, before all other options.  Raises Refusal."""
    number_option(request, "timeoutSeconds")
    number_option(request, "limit")


def check_list_options(request: Request) -> None:
    """The combinations of list options that Kubernetes refuses (2.12, 3.3)."""
    match = request.option("resourceVersionMatch")
    version = request.option("resourceVersion")
    errors = Errors()
    if request.option("sendInitialEvents"):
        errors.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if match:
        field, why = "resourceVersionMatch", "resourceVersionMatch is forbidden"
        if not version:
            errors.forbidden(field, f"{why} unless resourceVersion is provided")
        if request.option("continue"):
            errors.forbidden(field, f"{why} when continue is provided")
        if match not in ("Exact", "NotOlderThan"):
            errors.not_supported(field, match, ["Exact", "NotOlderThan", ""])
        elif match == "Exact" and version == "0":
            why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            errors.forbidden(field, why)
    if errors:
        # A malformed selector is refused before anything else.
        check_selectors(request.option("labelSelector"), request.option("fieldSelector"))
        raise invalid_option("ListOptions", errors)


async def list_objects(store: Store, request: Request, route: Route) -> Response:
    resource = route.resource
    form = wanted(request.headers, request.option("includeObject"), route)
    if not request.query:
        rows = rows_of(resource.collection, route.namespace)
        return await listed(resource, form, rows, {"resourceVersion": str(store.committed)})
    check_numbers(request)
    check_list_options(request)
    selection = select(
        resource,
        route.namespace,
        route.name,
        request.option("labelSelector"),
        request.option("fieldSelector"),
    )
    limit = number_option(request, "limit")
    token = request.option("continue")
    if token:
        start = Page.parse(token)
        if request.option("resourceVersion") not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        return await continued(store, resource, selection, form, start, limit)
    version = list_version(request)
    if request.option("resourceVersion") == "0":
        limit = 0  # whatever is at hand comes whole
    await at_least(store, version)
    collection = resource.collection
    # A page of a version that is named without saying how is one of that version, and there are no
    # more.
    exact = request.option("resourceVersionMatch") == "Exact" or (
        bool(limit and version) and not request.option("resourceVersionMatch")
    )
    if exact and (version < collection.version or version < store.compacted):
        state = snapshot(collection, version, selection.namespace)
        if state is None:
            raise expired(OLD_LIST)
        return await page(resource, selection, form, state.keys, state.rows, version, limit)
    shown = version if exact else store.committed
    return await page(
        resource,
        selection,
        form,
        collection.ordered(selection.namespace),
        collection.rows,
        shown,
        limit,
    )


def number_option(request: Request, name: str) -> int:
    text = request.option(name, "0")
    if not NUMBER(text):
        raise bad_request(
            f"strconv.ParseInt: parsing {json.dumps(text, ensure_ascii=False)}: invalid syntax"
        )
    if len(text) > LONGEST_NUMBER or not -(2**63) <= int(text) < 2**63:
        raise bad_request(
            f'strconv.ParseInt: parsing "{text[:LONGEST_NUMBER]}": value out of range'
        )
    return max(int(text), 0)


def rows_of(collection: Collection, namespace: str) -> list[Row]:
    rows = collection.rows
    if not namespace:
        return [rows[key] for key in collection.ordered()]
    return [rows[key] for key in collection.ordered(namespace)]


def selected(collection: Collection, selection: Selection) -> list[Row]:
    """The committed rows of a selection, in order."""
    if selection.name and (
        selection.namespace or not collection.rows or "/" not in next(iter(collection.rows))
    ):
        row = collection.rows.get(
            f"{selection.namespace}/{selection.name}" if selection.namespace else selection.name
        )
        return [row] if row is not None and selection.matches(row) else []
    rows = rows_of(collection, selection.namespace)
    if selection.everything:
        return rows
    return [row for row in rows if selection.matches(row)]


async def listed(resource: Resource, form: Form, rows: list[Row], metadata: Json) -> Response:
    """The response of a list.  Waits until its rows are converted to the requested version."""
    if resource.kind.conversion is not None and form.versioned:
        await resource.kind.conversion.ready(rows)
    return Response(200, form.list(resource, rows, metadata))


async def page(
    resource: Resource,
    selection: Selection,
    form: Form,
    keys: Sequence[str],
    rows: Mapping[str, Row],
    version: int,
    limit: int,
) -> Response:
    """The response of a list with the first `limit` matching rows of the keys."""
    metadata: Json = {"resourceVersion": str(version)}
    if not limit:
        if selection.everything:
            found = [rows[key] for key in keys]
        else:
            found = [row for row in [rows[key] for key in keys] if selection.matches(row)]
        return await listed(resource, form, found, metadata)
    found = []
    for position, key in enumerate(keys):
        row = rows[key]
        if selection.everything or selection.matches(row):
            found.append(row)
            if len(found) == limit:
                left = len(keys) - position - 1
                if left and not selection.name:
                    metadata["continue"] = Page(version, key).token()
                    if selection.everything:
                        metadata["remainingItemCount"] = left
                break
    return await listed(resource, form, found, metadata)


class Snapshot(NamedTuple):
    """A collection, or one namespace of it, as it was at some version."""

    keys: list[str]
    """In order."""
    rows: Mapping[str, Row]
    """At least those of the keys."""


def snapshot(
    collection: Collection, version: int, namespace: str = "", after: str = ""
) -> Snapshot | None:
    """The collection at an earlier version, from behind the key `after` on, worked out from the
    history; None if the history does not reach back.

    A long list asks for it once for five hundred objects, so this takes time for what has changed
    since, hardly for what is there.
    """
    if version < collection.store.compacted:
        return None
    events = collection.since(version)
    if events is None:
        return None
    keys = collection.ordered(namespace)
    if after:
        keys = keys[bisect_right(keys, after) :]
    if not events:
        return Snapshot(keys, collection.rows)
    before: dict[str, Row | None] = {}
    """The changed objects as they were; None for those that did not exist."""
    for event in reversed(events):
        before[event.row.key] = event.old
    prefix = f"{namespace}/" if namespace else ""
    gone = {key for key, row in before.items() if row is None and key in collection.rows}
    again = [
        key
        for key, row in before.items()
        if row is not None and key not in collection.rows and key > after and key.startswith(prefix)
    ]
    if gone:
        keys = [key for key in keys if key not in gone]
    if again:
        keys = sorted([*keys, *again])
    known = {key: row for key, row in before.items() if row is not None}
    return Snapshot(keys, ChainMap(known, collection.rows))


async def continued(
    store: Store, resource: Resource, selection: Selection, form: Form, start: Page, limit: int
) -> Response:
    collection = resource.collection
    began = start.version if start.version > 0 else store.committed
    state = snapshot(collection, began, selection.namespace, start.start)
    if state is None or began > store.committed:
        raise expired(OLD_CONTINUE, Page(-1, start.start).token())
    return await page(resource, selection, form, state.keys, state.rows, began, limit)
