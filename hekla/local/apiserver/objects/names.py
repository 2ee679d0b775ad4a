"""What a name may look like, and the sentence that says so when it does not (local-cluster 2.1).

Every rule is a function from the text to the reasons why it is refused; an empty tuple means that it is good.
"""

from __future__ import annotations

import re
from functools import lru_cache

from hekla.api import syntax
from hekla.api.syntax import Reasons, checked, dns_subdomain, label_value, qualified_name, too_long

__all__ = [
    "GOOD",
    "Reasons",
    "config_key",
    "dns_1035_label",
    "dns_label",
    "dns_subdomain",
    "env_name",
    "label_value",
    "path_segment",
    "port_name",
    "port_number",
    "qualified_name",
]

_label_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?").fullmatch
_config_key = re.compile(r"[-._a-zA-Z0-9]+").fullmatch
_env_name = re.compile(r"[!-<>-~ ]+").fullmatch
_port_name = re.compile(r"[-a-z0-9]+").fullmatch

_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end "
    "with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
GOOD: Reasons = ()


@lru_cache(maxsize=4096)
def dns_label(text: str) -> Reasons:
    """As everywhere, but of a text that would be a good subdomain it is said what makes it no label."""
    if syntax.is_label(text) is None and syntax.is_subdomain(text) is not None:
        return checked(text, 63, False, "must not contain dots", "characters")
    return syntax.dns_label(text)


def dns_1035_label(text: str) -> Reasons:
    return checked(text, 63, _label_1035(text) is not None, _LABEL_1035_RULE, "characters")


def path_segment(text: str) -> Reasons:
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{sign}'" for sign in "/%" if sign in text)


def config_key(text: str) -> Reasons:
    """A key of a ConfigMap or Secret: also a file name."""
    reasons = []
    if len(text) > 253:
        reasons.append(too_long(253))
    if _config_key(text) is None:
        reasons.append(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
            "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        )
    if text == ".":
        reasons.append("must not be '.'")
    elif text == "..":
        reasons.append("must not be '..'")
    elif text.startswith(".."):
        reasons.append("must not start with '..'")
    return tuple(reasons)


def env_name(text: str) -> Reasons:
    if _env_name(text) is None:
        return (
            "a valid environment variable name must consist only of printable ASCII characters other than '=' "
            "(e.g. 'my.env-name', or 'MY_ENV.NAME', or 'MyEnvName1', regex used for validation is '[ -<>-~]+')",
        )
    return GOOD


@lru_cache(maxsize=4096)
def port_name(text: str) -> Reasons:
    """The name of a container or service port (an IANA service name)."""
    reasons = []
    if len(text) > 15:
        reasons.append("must be no more than 15 characters")
    if text and _port_name(text) is None:
        reasons.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", text):
        reasons.append("must contain at least one letter (a-z)")
    if "--" in text:
        reasons.append("must not contain consecutive hyphens")
    if text and (text[0] == "-" or text[-1] == "-"):
        reasons.append("must not begin or end with a hyphen")
    return tuple(reasons)


def port_number(number: int) -> Reasons:
    return GOOD if 1 <= number <= 65535 else ("must be between 1 and 65535, inclusive",)
