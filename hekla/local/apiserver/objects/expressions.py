"""The environment of admission expressions: variables and types of policies and match conditions
(local-cluster 6.5).

Validation of a policy and its later evaluation both compile here, so what was accepted also runs.
CEL is imported with the first expression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from hekla.local.apiserver.objects.encoding import fields

if TYPE_CHECKING:
    from hekla.cel.environment import Program
    from hekla.cel.types import Type


class Unusable(Exception):
    """An expression that cannot be compiled; its text is the detail of a field error."""


def compile_admission_expression(
    text: str,
    wanted: Sequence[Type] = (),
    *,
    params: bool = False,
    authorizer: bool = True,
    variables: Mapping[str, Type] | None = None,
    object_type: Type | None = None,
    params_type: Type | None = None,
    mutation: bool = False,
) -> Program:
    """Compile an expression of a policy or webhook with the variables that it may use. `wanted`
    lists the result types that are allowed, any if it is empty. Raises Unusable."""
    from hekla.cel.environment import STRUCTS, WrongType, compile_expression
    from hekla.cel.errors import Refused
    from hekla.cel.types import AUTHORIZER, DYN, RESOURCE_CHECK
    from hekla.cel.types import Type as CelType

    kind = object_type or DYN
    known: dict[str, Type] = {
        "object": kind,
        "oldObject": kind,
        "request": request_type(),
        "namespaceObject": namespace_type(),
    }
    if params:
        known["params"] = params_type or DYN
    if authorizer:
        known["authorizer"] = AUTHORIZER
        known["authorizer.requestResource"] = RESOURCE_CHECK
    if variables is not None:
        known["variables"] = CelType(
            "kubernetes.variables",
            fields={name: (name, kind_of_variable) for name, kind_of_variable in variables.items()},
        )
    try:
        return compile_expression(text, known, wanted, STRUCTS if mutation else None)
    except Refused as error:
        raise Unusable(f"compilation failed: {error}") from error
    except WrongType as error:
        raise Unusable(str(error)) from error


def compile_match_condition(text: str, *, params: bool = False) -> Program:
    """Compile a match condition. Raises Unusable."""
    from hekla.cel.types import BOOL

    return compile_admission_expression(text, (BOOL,), params=params)


ANNOTATIONS_PATH = ["metadata", "annotations"]


def reads_spec_and_annotation_names(text: str) -> bool:
    """Whether an expression reads nothing but the object's spec and the names of its annotations."""
    from hekla.cel.nodes import Call, Constant, ListOf, Name, Node, Select
    from hekla.cel.parser import parse

    def path(node: Node) -> list[str] | None:
        """The path of a field of `object`; None for any other expression."""
        fields: list[str] = []
        while isinstance(node, Select) and not node.optional:
            fields.insert(0, node.field)
            node = node.operand
        return fields if isinstance(node, Name) and node.name == "object" else None

    def only_allowed(node: Node) -> bool:
        if isinstance(node, Constant):
            return True
        if isinstance(node, ListOf):
            return all(map(only_allowed, node.items))
        if isinstance(node, Select):
            fields = path(node)
            return fields is not None and (
                fields[0] == "spec" or (fields == ANNOTATIONS_PATH and node.test)
            )
        if not isinstance(node, Call):
            return False
        if (
            node.function == "@in"
            and path(node.arguments[1]) == ANNOTATIONS_PATH
            and isinstance(node.arguments[0], Constant)
        ):
            return True
        return all(map(only_allowed, node.arguments)) and (
            node.target is None or only_allowed(node.target)
        )

    return only_allowed(parse(text))


@cache
def request_type() -> Type:
    """The type of the variable `request`: the part of an AdmissionRequest that expressions may
    read."""
    from hekla.cel.types import BOOL, DYN, STRING, list_of, map_of
    from hekla.cel.types import Type as CelType

    def made(shown: str, /, **declared: Type) -> Type:
        return CelType(
            f"kubernetes.{shown}", fields={field: (field, kind) for field, kind in declared.items()}
        )

    kind = made("GroupVersionKind", group=STRING, version=STRING, kind=STRING)
    resource = made("GroupVersionResource", group=STRING, version=STRING, resource=STRING)
    user = made(
        "UserInfo",
        username=STRING,
        uid=STRING,
        groups=list_of(STRING),
        extra=map_of(STRING, list_of(STRING)),
    )
    return made(
        "AdmissionRequest",
        kind=kind,
        resource=resource,
        subResource=STRING,
        requestKind=kind,
        requestResource=resource,
        requestSubResource=STRING,
        name=STRING,
        namespace=STRING,
        operation=STRING,
        userInfo=user,
        dryRun=BOOL,
        options=DYN,
    )


@cache
def namespace_type() -> Type:
    """The part of a namespace that expressions may read."""
    from hekla.cel.schema import RAW_TIMESTAMP
    from hekla.cel.types import INT, STRING, list_of, map_of
    from hekla.cel.types import Type as CelType

    def made(name: str, declared: dict[str, Type]) -> Type:
        return CelType(
            f"kubernetes.{name}", fields={field: (field, kind) for field, kind in declared.items()}
        )

    condition_type = made(
        "NamespaceCondition",
        {
            "status": STRING,
            "type": STRING,
            "lastTransitionTime": RAW_TIMESTAMP,
            "message": STRING,
            "reason": STRING,
        },
    )
    metadata = made(
        "NamespaceMetadata",
        {
            "name": STRING,
            "generateName": STRING,
            "namespace": STRING,
            "labels": map_of(STRING, STRING),
            "annotations": map_of(STRING, STRING),
            "UID": STRING,
            "creationTimestamp": RAW_TIMESTAMP,
            "deletionGracePeriodSeconds": INT,
            "deletionTimestamp": RAW_TIMESTAMP,
            "generation": INT,
            "resourceVersion": STRING,
            "finalizers": list_of(STRING),
        },
    )
    return made(
        "Namespace",
        {
            "metadata": metadata,
            "spec": made("NamespaceSpec", {"finalizers": list_of(STRING)}),
            "status": made(
                "NamespaceStatus", {"conditions": list_of(condition_type), "phase": STRING}
            ),
        },
    )


# --- types of built-in kinds, for what a policy's status says of its expressions ------------------


def built_in_type(group: str, version: str, kind: str) -> Type | None:
    """The type of a built-in kind's objects, from the field tables; None if no table has the kind."""
    message = fields.root(group, version, kind)
    return None if message is None else _message_type(message, root=True)


def _message_type(message: fields.Message, *, root: bool = False) -> Type:
    from hekla.cel.schema import escaped
    from hekla.cel.types import STRING, LazyFields
    from hekla.cel.types import Type as CelType

    names: dict[str, Any] = {}
    for field, owner in fields.flat(message):
        shown = escaped(field.name)
        if shown is not None:
            names[shown] = (field, owner)

    def make(name: str, field_and_owner: Any) -> tuple[str, Type] | None:
        if field_and_owner is None:
            return name, STRING
        field, owner = field_and_owner
        return field.name, _field_type(field, owner)

    if root:
        names.setdefault("apiVersion", None)
        names.setdefault("kind", None)
    return CelType(f"{message.section}.{message.name}", fields=LazyFields(names, make))


def _field_type(field: fields.Field, owner: fields.Message) -> Type:
    from hekla.cel import schema as schemas
    from hekla.cel.types import BOOL, DYN, INT, STRING, list_of, map_of

    scalars: dict[str, Type] = {
        "string": STRING,
        "bool": BOOL,
        "int32": INT,
        "int64": INT,
        "double": schemas.RAW_DOUBLE,
        "bytes": schemas.RAW_BYTES,
        "Time": schemas.RAW_TIMESTAMP,
        "MicroTime": schemas.RAW_TIMESTAMP,
        "Duration": STRING,
    }
    one = scalars.get(field.type)
    if one is None:
        inner = None if field.type in fields.SPECIAL else fields.message(owner.section, field.type)
        one = DYN if inner is None else _message_type(inner)
    if field.many == "list":
        return list_of(one)
    return map_of(STRING, one) if field.many == "map" else one
