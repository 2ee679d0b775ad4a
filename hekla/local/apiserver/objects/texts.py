"""Texts in a status that have no influence on how an update is processed, such as messages and
times: if one replaces another, no other rule fails and no other manager owns a field.

A pattern has two groups: the field's name with its punctuation, and the text. It matches no empty
text, no text in an unusual form, and none with JSON escapes, because those may be processed
differently.
"""

from __future__ import annotations

import re
from typing import Any

from hekla.api.trees import Json

DAY = rb"(?:(?:0[13-9]|1[0-2])-(?:0[1-9]|[12]\d|30)|(?:0[13578]|1[02])-31|02-(?:0[1-9]|1\d|2[0-8]))"
TIME = rb"20\d\d-" + DAY + rb"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ"
OCTET = rb"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
ADDRESS = rb"(?:" + OCTET + rb"\.){3}" + OCTET
MESSAGE_TEXT = rb"[ !#-\[\]-~]+"

TIMES = ("lastTransitionTime", "startTime", "startedAt", "finishedAt")
MESSAGES = ("message", "transitionID")


def pattern(*forms: tuple[tuple[str, ...], bytes]) -> re.Pattern[bytes]:
    """The pattern for fields by the form of their texts. A quote after a backslash does not begin a
    field name."""
    names = b"|".join(
        b'(?:%b)":"(?=%b")' % ("|".join(fields).encode(), form) for fields, form in forms
    )
    return re.compile(rb'("(?<!\\")(?:' + names + rb'))([^"]+)')


OF_POD = pattern(
    (TIMES, TIME), (("podIP", "hostIP", "ip"), ADDRESS), (("message", "containerID"), MESSAGE_TEXT)
)
OF_SCHEMA = pattern((("lastTransitionTime",), TIME), (MESSAGES, MESSAGE_TEXT))
PLAIN_STRING_KEYWORDS = {"type", "description", "nullable"}


def of_schema(schema: Json | None) -> re.Pattern[bytes] | None:
    """The pattern for a status with a schema; None if the schema restricts such a field by more
    than its type."""
    return OF_SCHEMA if schema and _plain(schema) else None


def _plain(schema: Any) -> bool:
    if isinstance(schema, list):
        return all(_plain(item) for item in schema)
    if not isinstance(schema, dict):
        return True
    if not {"lastTransitionTime", *MESSAGES}.isdisjoint(
        schema.get("x-kubernetes-list-map-keys") or ()
    ):
        return False
    properties = schema.get("properties")
    for name, below in properties.items() if isinstance(properties, dict) else ():
        if name in MESSAGES and not (
            below.get("type") == "string" and below.keys() <= PLAIN_STRING_KEYWORDS
        ):
            return False
        if name == "lastTransitionTime" and not (
            below.get("type") == "string" and below.keys() <= PLAIN_STRING_KEYWORDS | {"format"}
        ):
            return False
    return all(_plain(below) for below in schema.values())
