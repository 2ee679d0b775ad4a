"""Which requests a webhook or admission policy matches: rules, selectors, and conditions in CEL
(local-cluster 6.2, 6.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hekla.api.trees import Json
from hekla.local.apiserver.admission.attributes import Attributes
from hekla.local.apiserver.auth.access import Access
from hekla.local.apiserver.auth.authorization import Authorizer
from hekla.local.apiserver.auth.user import SERVICE_ACCOUNT, User
from hekla.local.apiserver.objects.kind import Kind
from hekla.local.apiserver.request.selection import selects
from hekla.local.apiserver.storage.registry import Registry, Resource

if TYPE_CHECKING:
    from hekla.cel.environment import Program
    from hekla.cel.library.access import Authorizer as Asked
    from hekla.cel.library.access import Question, ResourceCheck

Key = tuple[str, str, str, str, str]
"""(group, version, plural, subresource, operation)"""


def key_of(kind: Kind, attributes: Attributes) -> Key:
    return kind.group, kind.version, kind.plural, attributes.subresource, attributes.operation


def rule_matches(rule: Json, kind: Kind, key: Key) -> bool:
    group, version, plural, subresource, operation = key

    def has(field: str, value: str) -> bool:
        values = rule.get(field) or []
        return "*" in values or value in values

    if not (
        has("operations", operation) and has("apiGroups", group) and has("apiVersions", version)
    ):
        return False
    scope = rule.get("scope") or "*"
    namespaced = kind.namespaced
    if scope != "*" and scope != ("Namespaced" if namespaced else "Cluster"):
        return False
    for pattern in rule.get("resources") or []:
        wanted, _, sub = pattern.partition("/")
        if wanted in ("*", plural) and (
            sub == subresource or (sub == "*" and (pattern != "*" or not subresource))
        ):
            return True
    return False


def siblings(registry: Registry, resource: Resource) -> Iterable[Resource]:
    """The other groups and versions under which the same objects are served."""
    collection = resource.collection
    return [
        other
        for other in registry.resources.values()
        if other.collection is collection and other is not resource
    ]


def matching_resource(
    rules: Sequence[Json], match_policy: str, registry: Registry, resource: Resource, key: Key
) -> Resource | None:
    """The resource that a request matches: its own, or another group or version of the same objects
    if matchPolicy is Equivalent."""
    if any(rule_matches(rule, resource.kind, key) for rule in rules):
        return resource
    if match_policy == "Exact":
        return None
    for other in siblings(registry, resource):
        kind = other.kind
        if any(
            rule_matches(rule, kind, (kind.group, kind.version, kind.plural, *key[3:]))
            for rule in rules
        ):
            return other
    return None


def selected(
    namespace_selector: Json | None,
    object_selector: Json | None,
    attributes: Attributes,
    registry: Registry,
) -> bool:
    if namespace_selector:
        labels = namespace_labels(attributes, registry)
        if labels is not None and not selects(namespace_selector, labels):
            return False
    if object_selector:
        trees = [tree for tree in (attributes.object, attributes.old) if tree is not None]
        return any(
            selects(object_selector, tree.get("metadata", {}).get("labels") or {}) for tree in trees
        )
    return True


def namespace_labels(attributes: Attributes, registry: Registry) -> Mapping[str, str] | None:
    """The labels of the object's namespace, or of the object if it is a namespace; None if it has
    no namespace."""
    if attributes.resource.collection.name == "namespaces":
        tree = attributes.object or attributes.old or {}
        return tree.get("metadata", {}).get("labels") or {}
    if not attributes.namespace:
        return None
    row = registry["namespaces"].collection.newest(attributes.namespace)
    return dict(row.labels) if row is not None else {}


# --- what expressions are told --------------------------------------------------------------------


def request_tree(attributes: Attributes, matched: Resource | None = None) -> Json:
    """The request as webhooks and expressions get it, without the objects and the uid."""
    resource, call = attributes.resource, attributes.call
    seen = matched or resource
    tree: Json = {
        "kind": kind_tree(seen.kind, attributes.subresource),
        "resource": {
            "group": seen.kind.group,
            "version": seen.kind.version,
            "resource": seen.kind.plural,
        },
        "requestKind": kind_tree(resource.kind, attributes.subresource),
        "requestResource": {
            "group": resource.kind.group,
            "version": resource.kind.version,
            "resource": resource.kind.plural,
        },
        "operation": attributes.operation,
        "userInfo": call.user.tree(),
        "dryRun": call.dry_run,
        "options": call.options_tree(),
    }
    if attributes.subresource:
        tree["subResource"] = tree["requestSubResource"] = attributes.subresource
    if attributes.name:
        tree["name"] = attributes.name
    if attributes.namespace:
        tree["namespace"] = attributes.namespace
    elif resource.kind.plural == "namespaces" and not resource.kind.group:
        tree["namespace"] = attributes.name
    if attributes.options is not None:
        tree["options"] = attributes.options
    return tree


def kind_tree(kind: Kind, subresource: str) -> Json:
    sub = kind.subresources.get(subresource) if subresource else None
    if sub is not None and sub.kind:
        return {"group": sub.group, "version": sub.version or "v1", "kind": sub.kind}
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def object_in(matched: Resource, attributes: Attributes, tree: Json | None) -> Json | None:
    """An object in the matched group and version, with its kind."""
    if tree is None:
        return None
    own = attributes.resource.kind
    if matched.kind is not own and own.conversion is not None:
        tree = next(
            (
                view
                for of, version, view in attributes.views
                if of is tree and version == matched.kind.api_version
            ),
            tree,
        )
    elif matched.kind is not own:
        if own.keep is not None:
            tree = own.keep(tree)
        if matched.kind.present is not None:
            tree = matched.kind.present(tree)
    shown = kind_tree(matched.kind, attributes.subresource)
    version = f"{shown['group']}/{shown['version']}" if shown["group"] else shown["version"]
    return {"apiVersion": version, "kind": shown["kind"], **tree}


def scope_of(
    attributes: Attributes, matched: Resource, registry: Registry, authorizer: Authorizer
) -> Json:
    """The variables of an expression.  Expensive ones are computed when they are read."""
    from hekla.cel.program import Thunk

    def asked() -> Asked:
        from hekla.cel import library

        library.load("access")
        from hekla.cel.library.access import Authorizer as Asked

        return Asked(decider(authorizer, attributes.call.user))

    def namespace() -> Any:
        if not attributes.namespace or attributes.resource.collection.name == "namespaces":
            return None
        row = registry["namespaces"].collection.newest(attributes.namespace)
        return None if row is None else row.tree()

    def requested() -> ResourceCheck:
        from hekla.cel.library.access import GroupCheck, ResourceCheck

        kind = attributes.resource.kind
        group = GroupCheck(asked(), kind.group)
        return ResourceCheck(
            group.authorizer,
            kind.group,
            kind.plural,
            attributes.subresource,
            attributes.namespace,
            attributes.name,
        )

    return {
        "object": object_in(matched, attributes, attributes.object),
        "oldObject": object_in(matched, attributes, attributes.old),
        "request": Thunk(lambda: request_tree(attributes, matched)),
        "namespaceObject": Thunk(namespace),
        "authorizer": Thunk(asked),
        "authorizer.requestResource": Thunk(requested),
    }


def decider(authorizer: Authorizer, user: User) -> Callable[[Question], tuple[bool, str]]:
    def decide(question: Question) -> tuple[bool, str]:
        who = user
        if question.account is not None:
            namespace, name = question.account
            groups = (
                "system:serviceaccounts",
                f"system:serviceaccounts:{namespace}",
                "system:authenticated",
            )
            who = User(f"{SERVICE_ACCOUNT}{namespace}:{name}", groups)
        access = Access(
            question.verb,
            question.group,
            question.resource,
            question.subresource,
            question.namespace,
            question.name,
            question.path,
        )
        return authorizer.allows(who, access)

    return decide


class Conditions:
    """The `matchConditions` of a webhook or a policy: all must hold."""

    __slots__ = ("entries", "reads_spec_and_annotation_names")

    def __init__(self, declared: Sequence[Json], *, params: bool = False) -> None:
        """Raises Unusable."""
        self.entries: list[tuple[str, str, Program]] = []
        self.reads_spec_and_annotation_names = False
        """Whether the conditions read only the object's spec and the names of its annotations."""
        if declared:
            from hekla.local.apiserver.objects.expressions import (
                compile_match_condition,
                reads_spec_and_annotation_names,
            )

            for entry in declared:
                text = (entry.get("expression") or "").strip()
                self.entries.append(
                    (entry.get("name") or "", text, compile_match_condition(text, params=params))
                )
            self.reads_spec_and_annotation_names = not params and all(
                reads_spec_and_annotation_names(text) for _, text, _ in self.entries
            )

    def hold(self, scope: Json) -> bool:
        """Whether all conditions hold.  Raises ConditionFailed if one could not be evaluated and
        none is false."""
        from hekla.cel.errors import Failed

        wrong: list[str] = []
        for _, text, program in self.entries:
            try:
                if program(scope) is not True:
                    return False
            except Failed as error:
                wrong.append(f"expression '{text}' resulted in error: {error}")
        if wrong:
            raise ConditionFailed(wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")
        return True


class ConditionFailed(Exception):
    """A condition that could not be evaluated; the failure policy decides what follows."""
