"""The scale subresource."""

from __future__ import annotations

from typing import Any

from hekla.api.text import fielderrors
from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.objects.columns import AGE, NAME
from hekla.local.apiserver.objects.encoding.decode import reader
from hekla.local.apiserver.objects.kind import Column, Kind
from hekla.local.apiserver.request.call import Call
from hekla.local.apiserver.request.forms import MetadataForm, TableForm, wanted
from hekla.local.apiserver.request.status import (
    Refusal,
    conflict,
    invalid,
    not_found,
)
from hekla.local.apiserver.storage.rows import Row, encode
from hekla.local.apiserver.write.writing import Writer

SCALE = Kind("autoscaling", "v1", "Scale", "scales", True)
READ_SCALE = reader("autoscaling", "v1", "Scale")
SCALE_COLUMNS = (
    NAME._replace(format=""),
    Column(
        "Desired", "integer", "", "How many instances the object should have.", 0,
        lambda tree, now: tree["spec"].get("replicas", 0),
    ),
    Column(
        "Available", "integer", "", "How many instances of the object were seen.", 0,
        lambda tree, now: tree["status"].get("replicas", 0),
    ),
    AGE,
)  # fmt: skip


class Subresources:
    """Reads and writes the scale of objects.  Other subresources have modules of their own."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    # --- scale ------------------------------------------------------------------------------------

    def scale_of(self, call: Call, row: Row) -> Json:
        paths = call.route.kind.scale
        tree = row.tree()
        metadata = {
            key: tree["metadata"][key]
            for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
            if key in tree["metadata"]
        }
        replicas = at(tree, paths.spec_replicas)
        if replicas is None:
            where = "." + ".".join(paths.spec_replicas)
            raise Refusal(
                500,
                f'Internal error occurred: the spec replicas field "{where}" does not exist',
                details={},
            )
        status: Json = {"replicas": at(tree, paths.status_replicas) or 0}
        if paths.selector is not None:
            selector = at(tree, paths.selector)
            text = selector if isinstance(selector, str) else selector_text(selector or {})
            if text:
                status["selector"] = text
        spec = {"replicas": replicas} if replicas else {}
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": metadata,
            "spec": spec,
            "status": status,
        }

    async def get_scale(self, call: Call) -> Response:
        row = call.resource.collection.rows.get(call.route.key)
        if row is None:
            raise not_found(call.route.kind, call.route.name)
        return self._shown(call, self.scale_of(call, row))

    @staticmethod
    def _shown(call: Call, scale: Json) -> Response:
        form = wanted(call.request.headers, call.request.option("includeObject"))
        if isinstance(form, TableForm):
            return call.respond(200, encode(form.of_tree(SCALE_COLUMNS, scale)))
        return call.respond(
            200,
            encode(
                form.of_metadata(scale["metadata"]) if isinstance(form, MetadataForm) else scale
            ),
        )

    async def put_scale(self, call: Call, scale: Json) -> Response:
        """Write spec.replicas of a Scale into its object."""
        kind, paths = call.route.kind, call.route.kind.scale
        replicas = (scale.get("spec") or {}).get("replicas", 0)
        if replicas < 0:
            error = fielderrors.invalid(
                "spec.replicas", replicas, "must be greater than or equal to 0"
            )
            raise invalid(SCALE, call.route.name, [error])
        version = (scale.get("metadata") or {}).get("resourceVersion") or ""
        uid = (scale.get("metadata") or {}).get("uid") or ""

        def change(tree: Json) -> Json:
            if version and version != tree["metadata"]["resourceVersion"]:
                raise conflict(kind, call.route.name)
            if uid and uid != tree["metadata"]["uid"]:
                raise conflict(
                    kind,
                    call.route.name,
                    f"Precondition failed: UID in precondition: {uid}, UID in object meta: {tree['metadata']['uid']}",
                )
            put_at(tree, paths.spec_replicas, replicas)
            return tree

        row, tree = await self.writer.change(
            call, call.resource, call.route.key, change, retry=not version
        )
        return self.scale_answer(call, row, tree)

    def scale_answer(self, call: Call, row: Row | None, tree: Json) -> Response:
        """The response with the Scale of a written object.  Under dry run there is no row, and
        `tree` is the object."""
        if row is not None:
            return self._shown(call, self.scale_of(call, row))
        found = call.resource.collection.rows.get(call.route.key)
        if found is None:
            raise not_found(call.route.kind, call.route.name)
        dry = self.scale_of(call, found)
        replicas = at(tree, call.route.kind.scale.spec_replicas)
        dry["spec"] = {"replicas": replicas} if replicas else {}
        return self._shown(call, dry)


def at(tree: Json, path: tuple[str, ...]) -> Any:
    found: Any = tree
    for step in path:
        if not isinstance(found, dict):
            return None
        found = found.get(step)
    return found


def put_at(tree: Json, path: tuple[str, ...], value: object) -> None:
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
    tree[path[-1]] = value


def selector_text(selector: Json) -> str:
    """A label selector as text, in the syntax of list requests."""
    if selector and not ({"matchLabels", "matchExpressions"} & selector.keys()):
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for term in selector.get("matchExpressions") or []:
        key, operator, values = (
            term.get("key"),
            term.get("operator"),
            sorted(term.get("values") or []),
        )
        match operator:
            case "Exists":
                terms.append(key)
            case "DoesNotExist":
                terms.append(f"!{key}")
            case _:
                terms.append(f"{key} {str(operator).lower()} ({','.join(values)})")
    return ",".join(terms)
