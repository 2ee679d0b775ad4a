"""Rules for names, and the messages if a name breaks them (local-cluster 2.1).

A rule is a function from a text to the reasons why it is invalid, an empty tuple if it is valid.
Most come from `hekla.api`.
"""

from __future__ import annotations

import re

from hekla.api.text.syntax import (
    Reasons,
    checked,
    configuration_key,
    dns_label,
    dns_subdomain,
    label_value,
    port_name,
    port_number,
    qualified_name,
    relaxed_environment_name,
)

__all__ = [
    "Reasons",
    "configuration_key",
    "dns_1035_label",
    "dns_label",
    "dns_subdomain",
    "label_value",
    "path_segment",
    "port_name",
    "port_number",
    "qualified_name",
    "relaxed_environment_name",
]

_label_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?").fullmatch

_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end "
    "with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


def dns_1035_label(text: str) -> Reasons:
    return checked(text, 63, _label_1035(text) is not None, _LABEL_1035_RULE, "characters")


def path_segment(text: str) -> Reasons:
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{sign}'" for sign in "/%" if sign in text)
