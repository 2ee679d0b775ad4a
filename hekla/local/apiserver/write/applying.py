"""Server-side apply: a client sends the fields that it wants, and the server records in
managedFields who wants what (local-cluster 2.7)."""

from __future__ import annotations

import time
from typing import Any

from hekla.api.text import fielderrors
from hekla.api.trees import Json
from hekla.kube.http.server import Response
from hekla.local.apiserver.objects.encoding import documents
from hekla.local.apiserver.objects.encoding.go_text import printed
from hekla.local.apiserver.objects.encoding.typecheck import type_name
from hekla.local.apiserver.objects.errors import BadBody
from hekla.local.apiserver.objects.merging import fieldsets, merging, ownership
from hekla.local.apiserver.objects.merging.ownership import Conflicts, Owner, Scope, Shares
from hekla.local.apiserver.request.call import Call, read_again
from hekla.local.apiserver.request.status import (
    Refusal,
    bad_request,
    conflict,
    invalid_option,
    not_found,
)
from hekla.local.apiserver.request.subresources import Subresources, at, put_at
from hekla.local.apiserver.storage.managed_fields import Ownership
from hekla.local.apiserver.write.updating import WITHOUT_RESPONSE, run_update
from hekla.local.apiserver.write.writing import Writer, update_of


async def apply_patch(writer: Writer, subresources: Subresources, call: Call) -> Response:
    if not call.field_manager:
        required = fielderrors.required("fieldManager", "is required for apply patch")
        raise invalid_option("PatchOptions", [required])
    configuration = read_configuration(call)
    return await Application(writer, subresources, call, configuration).run()


def read_configuration(call: Call) -> Json:
    """Read the body, which is YAML or JSON.  Raises Refusal."""
    body = call.request.body
    try:
        document = documents.yaml_document(body)
    except BadBody as error:
        raise bad_request(f"error decoding YAML: {error}") from error
    tree: Any = document.tree
    if not isinstance(tree, dict):
        what = f"json: cannot unmarshal {type_name(tree)} into Go value of type map[string]interface {{}}"
        raise bad_request(
            f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {what}"
        )
    if document.duplicates and call.field_validation != "Ignore":
        text = "yaml: unmarshal errors:\n  " + "\n  ".join(document.duplicates)
        if call.field_validation == "Strict":
            raise bad_request(f"error strict decoding YAML: error converting YAML to JSON: {text}")
        call.warn(text)
    return tree


class Application:
    """One apply request."""

    def __init__(
        self, writer: Writer, subresources: Subresources, call: Call, configuration: Json
    ) -> None:
        self.writer = writer
        self.subresources = subresources
        self.call = call
        self.kind = call.route.kind
        self.configuration = configuration
        self.force = call.request.flag("force")
        self.scale = call.route.subresource == "scale"
        self.scope: Scope = call.resource.scope(call.route.subresource)
        self.owner = Owner(call.field_manager, ownership.APPLY, call.route.subresource)

    async def run(self) -> Response:
        call, route = self.call, self.call.route
        row = call.resource.collection.newest(route.key)
        if row is None and route.subresource:
            raise not_found(self.kind, route.name)
        self._check()
        if row is None:
            return await self._create()
        version = (self.configuration.get("metadata") or {}).get("resourceVersion")
        update = update_of(self.writer.backend, call, None, retried=not version)
        update.merge = self.merge
        if self.scale:
            await run_update(update, WITHOUT_RESPONSE)
            return self.subresources.scale_answer(call, update.result, update.new)
        await run_update(update)
        return update.response

    def _check(self) -> None:
        """Refuse a body that is no configuration of this kind."""
        tree, kind = self.configuration, self.kind
        group_kind = (
            _described(kind.api_version, kind.kind)
            if not self.scale
            else "autoscaling/v1, Kind=Scale"
        )
        found = _described(
            *(
                said if isinstance(said := tree.get(name), str) else ""
                for name in ("apiVersion", "kind")
            )
        )
        if found != group_kind:
            raise bad_request(f"invalid object type: {found}")
        metadata = tree.get("metadata") or {}
        if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
            raise bad_request("metadata.managedFields must be nil")
        if self.scale:
            self._read_scale(metadata)
        errors = merging.check(self.scope.node, self.configuration)
        if errors:
            raise self._untyped(
                errors[0]
                if len(errors) == 1
                else "\n".join(["errors:", *(f"  {text}" for text in errors)])
            )

    def _read_scale(self, metadata: Json) -> None:
        """Turn a Scale into a configuration of its object that names only the replicas."""
        if not isinstance(metadata, dict):
            raise self._untyped(f".metadata: expected map, got &{{{printed(metadata)}}}")
        spec = self.configuration.get("spec") or {}
        replicas = spec.get("replicas") if isinstance(spec, dict) else None
        if replicas is not None and (not isinstance(replicas, int) or isinstance(replicas, bool)):
            raise self._untyped(f".spec.replicas: expected numeric (int or float), got {replicas}")
        kept = {
            name: metadata[name]
            for name in ("name", "namespace", "resourceVersion", "uid")
            if name in metadata
        }
        inner: Json = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "metadata": kept,
        }
        if replicas is not None:
            put_at(inner, self.kind.scale.spec_replicas, replicas)
        self.configuration = inner

    def _untyped(self, why: str) -> Refusal:
        metadata = self.configuration.get("metadata") or {}
        if not isinstance(metadata, dict):
            metadata = {}
        name, namespace = (
            said if isinstance(said := metadata.get(place), str) else ""
            for place in ("name", "namespace")
        )
        shown = _described(self.kind.api_version, self.kind.kind)
        return Refusal(
            500,
            f"failed to create typed patch object ({namespace}/{name}; {shown}): {why}",
            reason="",
            details=None,
        )

    # --- the two ways -----------------------------------------------------------------------------

    def merge(self, old: Json, held: Ownership) -> tuple[Json, Shares]:
        """Merge the configuration into the live object.  Returns the object and who owns its
        fields."""
        kind = self.kind
        owners, stamps = held
        live = {"apiVersion": kind.api_version, "kind": kind.kind, **old}
        try:
            new, shares = ownership.applied(
                self.scope,
                live,
                self.configuration,
                {} if owners is None else owners.shares(stamps),
                self.owner,
                0 if self.scale else int(time.time()),
                force=self.force,
            )
        except Conflicts as conflicts:
            raise conflicting(conflicts) from None
        except merging.Unmergeable as error:
            raise Refusal(
                500, f"failed to merge config: {error}", reason="", details=None
            ) from None
        if "name" in (self.configuration.get("metadata") or {}):
            self._check_name()
        if self.scale and at(new, kind.scale.spec_replicas) is None:
            put_at(new, kind.scale.spec_replicas, at(old, kind.scale.spec_replicas) or 0)
        return read_again(self.call, kind, new), shares

    def _check_name(self) -> None:
        """Refuse a configuration whose name is not the one in the URL."""
        name, wanted = (self.configuration.get("metadata") or {}).get("name"), self.call.route.name
        if not name:
            raise bad_request(
                f"the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
            )
        if name != wanted:
            raise bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({wanted})"
            )

    async def _create(self) -> Response:
        call, route, kind = self.call, self.call.route, self.kind
        metadata = self.configuration.get("metadata") or {}
        if metadata.get("uid"):
            why = f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
            raise conflict(kind, route.name, why)
        self._check_name()
        tree, shares = self.merge({"metadata": {}}, (None, b""))
        tree["metadata"].pop("resourceVersion", None)
        return await self.writer.create_tree(call, tree, shares)


def _described(api_version: str, kind: str) -> str:
    """A type as Go prints it: `/v1, Kind=ConfigMap`, `apps/v1, Kind=Deployment`."""
    return f"{api_version if '/' in api_version else f'/{api_version}'}, Kind={kind}"


def conflicting(conflicts: Conflicts) -> Refusal:
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {ownership.named(found.owner)}",
            "field": fieldsets.shown(found.path),
        }
        for found in conflicts.found
    ]
    return Refusal(409, ownership.conflict_message(conflicts.found), details={"causes": causes})
