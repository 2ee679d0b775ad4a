"""One `x-kubernetes-validations` rule: checked against its schema when it is declared, compiled
when the first object is validated (local-cluster 4.4).

CEL itself is imported when the first rule is compiled.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from hekla.api.text.fielderrors import forbidden, invalid, required, shown
from hekla.api.text.fieldrules import Errors
from hekla.api.trees import Json
from hekla.local.apiserver.objects.kind import FieldError

if TYPE_CHECKING:
    from hekla.cel.environment import Program
    from hekla.cel.types import Type

REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
NO_OLD_VALUE = object()
"""Stands for the old value if there is none to compare with."""
STEP_BUDGET = 1_000_000
"""How many evaluation steps all rules together may take for one object."""
MAX_MESSAGE_BYTES = 5 * 1024


class Rule:
    """A compiled rule."""

    __slots__ = (
        "declared",
        "kind",
        "message",
        "message_program",
        "optional",
        "path",
        "program",
        "read",
        "reason",
        "text",
        "transition",
    )

    def __init__(self, declared: Json, schema: Json, self_type: Type) -> None:
        """Raises hekla.cel.errors.Refused and WrongType."""
        from hekla.cel.program import reader

        self.declared = declared
        self.text: str = (declared.get("rule") or "").strip()
        self.optional = bool(declared.get("optionalOldSelf"))
        self.program = compile_rule(declared, "rule", self_type)
        self.transition = "oldSelf" in self.program.names
        self.message = (declared.get("message") or "").strip()
        self.message_program = (
            compile_rule(declared, "messageExpression", self_type)
            if declared.get("messageExpression")
            else None
        )
        self.reason: str = declared.get("reason") or "FieldValueInvalid"
        self.kind: str = schema.get("type") or ""
        self.read = reader(self_type)
        path = declared.get("fieldPath") or ""
        self.path = field_path(path, schema) or "" if path else ""

    def evaluate(self, value: Any, old: Any, path: str, errors: Errors, budget: list[int]) -> None:
        """Append an error if the value breaks the rule, or if the rule cannot be evaluated.

        `old` is the value before an update or NO_OLD_VALUE. Takes its steps from `budget[0]`.
        """
        from hekla.cel.errors import Failed, TooCostly
        from hekla.cel.values import NONE, Optional

        if self.transition:
            if old is NO_OLD_VALUE and not self.optional:
                return
        elif old is not NO_OLD_VALUE and old == value:
            return  # an unchanged value stays valid, also if it is older than the rule
        before = old if old is NO_OLD_VALUE or self.read is None else self.read(old)
        if self.read is not None:
            value = self.read(value)
        scope = {"self": value}
        if self.optional:
            scope["oldSelf"] = NONE if before is NO_OLD_VALUE else Optional(before)
        elif before is not NO_OLD_VALUE:
            scope["oldSelf"] = before
        try:
            if self.program.spend(scope, budget) is True:
                return
        except TooCostly as failure:
            end = (
                "no further validation rules will be run due to call cost exceeds limit for rule: "
            )
            errors.append(self.error(path, f"'{failure}': {end}"))
            return
        except Failed as failure:
            if str(failure).startswith("no such overload"):
                why = f"'{failure}': call arguments did not match a supported operator, function or macro signature for rule: "
            else:
                why = f"{failure} evaluating rule: "
            errors.append(self.error(path, why))
            return
        where = f"{path}{self.path}" if path else self.path.lstrip(".")
        errors.append(self._violation(where or "<nil>", value, self._message(scope, budget)))

    def error(self, path: str, why: str) -> FieldError:
        return invalid(path or "<nil>", self.kind, why + (self.message or self.text))

    def _message(self, scope: Json, budget: list[int]) -> str:
        from hekla.cel.errors import Failed

        if self.message_program is not None:
            try:
                text = str(self.message_program.spend(scope, budget)).strip()
                if text and "\n" not in text and len(text.encode()) <= MAX_MESSAGE_BYTES:
                    return text
            except Failed:
                pass  # the fixed message is used instead
        return self.message or f"failed rule: {self.text}"

    def _violation(self, path: str, value: Any, message: str) -> FieldError:
        reason = self.reason
        plain = (
            ""
            if self.kind in ("object", "array") or isinstance(value, (dict, list))
            else f": {_scalar(value)}"
        )
        if reason == "FieldValueForbidden":
            return forbidden(path, message)
        if reason == "FieldValueRequired":
            return required(path, message)
        if reason == "FieldValueDuplicate":
            return FieldError(path, reason, f"Duplicate value{plain}")
        return FieldError(path, "FieldValueInvalid", f"Invalid value{plain}: {message}")


def _scalar(value: Any) -> str:
    return shown(
        value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
    )


def compile_rule(declared: Json, which: str, self_type: Type) -> Program:
    """Compile the field `which` of a rule: `rule` or `messageExpression`. Raises Refused and
    WrongType."""
    from hekla.cel.environment import WrongType, compile_expression
    from hekla.cel.types import BOOL, STRING, optional_of

    old = optional_of(self_type) if declared.get("optionalOldSelf") else self_type
    program = compile_expression(declared.get(which) or "", {"self": self_type, "oldSelf": old})
    wanted = BOOL if which == "rule" else STRING
    if program.type != wanted:
        raise WrongType(
            "cel expression must evaluate to a bool"
            if which == "rule"
            else "messageExpression must evaluate to a string"
        )
    return program


# --- when a rule is declared ----------------------------------------------------------------------


def check_declarations(
    schema: Json, path: str, errors: Errors, *, root: bool, uncorrelated: str
) -> None:
    """Append what is wrong with the rules of one schema node.

    `uncorrelated` is the path of the nearest list around it whose elements have no keys, so that it
    is not known which old value belongs to which new one; empty if there is none.
    """
    rules = schema.get("x-kubernetes-validations") or ()
    if not rules:
        return
    if schema.get("type") is None and not schema.get("x-kubernetes-int-or-string"):
        errors.forbidden(
            f"{path}.x-kubernetes-validations", "must not be used if type is not specified"
        )
        return
    from hekla.cel import schema as schemas
    from hekla.cel.environment import WrongType
    from hekla.cel.errors import Refused

    self_type = schemas.declared(
        schema, root=root or bool(schema.get("x-kubernetes-embedded-resource"))
    )
    for position, rule in enumerate(rules):
        where = f"{path}.x-kubernetes-validations[{position}]"
        _check_text_fields(rule, where, schema, errors)
        if self_type is None or not (rule.get("rule") or "").strip():
            continue
        uses_old = False
        for which in ("rule", "messageExpression"):
            if not (rule.get(which) or "").strip():
                continue
            try:
                program = compile_rule(rule, which, self_type)
                uses_old = uses_old or (which == "rule" and "oldSelf" in program.names)
            except Refused as error:
                start = "" if which == "rule" else "messageExpression "
                errors.append(
                    _declaration_error(
                        f"{where}.{which}", rule, f"{start}compilation failed: {error}"
                    )
                )
                uses_old = uses_old or "oldSelf" in rule[which]
            except WrongType as error:
                errors.append(_declaration_error(f"{where}.{which}", rule, str(error)))
        if uses_old and uncorrelated:
            why = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {uncorrelated}"
            errors.invalid(f"{where}.rule", rule["rule"], why)
        elif not uses_old and rule.get("optionalOldSelf") is not None:
            why = "may not be set if oldSelf is not used in rule"
            errors.invalid(f"{where}.optionalOldSelf", rule["optionalOldSelf"], why)


def _declaration_error(path: str, rule: Json, why: str) -> FieldError:
    """An error whose value is the whole rule, as Kubernetes prints its Go struct."""
    names = (
        ("Rule", "rule", ""),
        ("Message", "message", ""),
        ("MessageExpression", "messageExpression", ""),
        ("Reason", "reason", None),
        ("FieldPath", "fieldPath", ""),
        ("OptionalOldSelf", "optionalOldSelf", None),
    )
    value = json.dumps(
        {shown: rule.get(name, empty) for shown, name, empty in names},
        ensure_ascii=False,
        separators=(",", ":"),
    )
    for sign, code in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        value = value.replace(sign, code)
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {value}: {why}")


def _check_text_fields(rule: Json, where: str, schema: Json, errors: Errors) -> None:
    text, message = (rule.get("rule") or "").strip(), rule.get("message") or ""
    if not text:
        errors.required(f"{where}.rule", "rule is not specified")
    if message and not message.strip():
        errors.invalid(f"{where}.message", message, "must be non-empty if specified")
    elif "\n" in message:
        errors.invalid(f"{where}.message", message, "must not contain line breaks")
    elif "\n" in text and not message and not rule.get("messageExpression"):
        errors.required(
            f"{where}.message", "message must be specified if rule contains line breaks"
        )
    expression = rule.get("messageExpression")
    if expression and not expression.strip():
        errors.required(
            f"{where}.messageExpression", "messageExpression must be non-empty if specified"
        )
    reason = rule.get("reason")
    if reason is not None and reason not in REASONS:
        errors.not_supported(f"{where}.reason", reason, REASONS)
    path = rule.get("fieldPath") or ""
    if path and not path.strip():
        errors.invalid(f"{where}.fieldPath", path, "must be non-empty if specified")
    elif "\n" in path:
        errors.invalid(f"{where}.fieldPath", path, "must not contain line breaks")
    elif path and field_path(path, schema) is None:
        errors.invalid(f"{where}.fieldPath", path, "must be a valid path")


_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*|[^.\[\]']+)|\['((?:[^'\\]|\\.)+)'\]")


def field_path(text: str, schema: Json) -> str | None:
    """A fieldPath as errors show it; None if the schema has no such field."""
    at, result, node = 0, "", schema
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            return None
        name = match[1] or match[2].replace("\\'", "'").replace("\\\\", "\\")
        properties, additional = node.get("properties") or {}, node.get("additionalProperties")
        if name in properties:
            node = properties[name]
            result += f".{name}"
        elif isinstance(additional, dict):
            node = additional
            result += f"[{name}]"
        else:
            return None
        at = match.end()
    return result
