"""Syntax of names, and the reasons why one is invalid, in Kubernetes' words.

Each function returns the reasons against a text; an empty tuple means that it is valid.
"""

from __future__ import annotations

import re
from functools import lru_cache

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

is_label = re.compile(LABEL).fullmatch
is_subdomain = re.compile(SUBDOMAIN).fullmatch
_qualified = re.compile(QUALIFIED).fullmatch

_ALPHANUMERIC = "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    f"alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    f"with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
)
_QUALIFIED_RULE = (
    f"must consist of {_ALPHANUMERIC} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    f"regex used for validation is '{QUALIFIED}')"
)
_LABEL_VALUE_RULE = (
    f"a valid label must be an empty string or consist of {_ALPHANUMERIC} (e.g. 'MyValue',  or 'my_value',  or '12345', "
    f"regex used for validation is '({QUALIFIED})?')"
)

_ENVIRONMENT_RULE = (
    "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start "
    "with a digit (e.g. 'my.env-name',  or 'MY_ENV.NAME',  or 'MyEnvName1', "
    "regex used for validation is '[-._a-zA-Z][-._a-zA-Z0-9]*')"
)
_RELAXED_ENVIRONMENT_RULE = "a valid environment variable name must consist only of printable ASCII characters other than '='"
_CONFIGURATION_KEY_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', "
    "regex used for validation is '[-._a-zA-Z0-9]+')"
)
_UNDERSCORED = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
_UNDERSCORED_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end "
    f"with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_UNDERSCORED}')"
)
_is_environment_name = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*").fullmatch
_is_relaxed_environment_name = re.compile(r"[!-<>-~ ]*").fullmatch
_is_configuration_key = re.compile(r"[-._a-zA-Z0-9]+").fullmatch
_is_underscored = re.compile(_UNDERSCORED).fullmatch
_is_port_name = re.compile(r"[-a-z0-9]+").fullmatch

Reasons = tuple[str, ...]


def too_long(limit: int, unit: str = "bytes") -> str:
    return f"must be no more than {limit} {unit}"


@lru_cache(maxsize=4096)
def dns_label(text: str) -> Reasons:
    """Check one part of a host name, up to 63 characters.  If the text would be a valid subdomain,
    the reason says what makes it no label."""
    good = is_label(text) is not None
    rule = _LABEL_RULE if good or is_subdomain(text) is None else "must not contain dots"
    return checked(text, 63, good, rule, "characters")


def dns_subdomain(text: str) -> Reasons:
    """Check a host name, up to 253 characters: the names of most objects."""
    return checked(text, 253, is_subdomain(text) is not None, _SUBDOMAIN_RULE, "characters")


def label_value(text: str) -> Reasons:
    return checked(text, 63, not text or _qualified(text) is not None, _LABEL_VALUE_RULE)


def qualified_name(text: str) -> Reasons:
    """Check the key of a label: a name, with an optional subdomain and slash before it."""
    prefix, slash, name = text.partition("/")
    reasons: list[str] = []
    if not slash:
        name = text
    elif "/" in name:
        return (
            f"a valid label key {_QUALIFIED_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        )
    elif not prefix:
        reasons.append("prefix part must be non-empty")
    else:
        reasons += [
            f"prefix part {reason}"
            for reason in checked(prefix, 253, is_subdomain(prefix) is not None, _SUBDOMAIN_RULE)
        ]
    if not name:
        reasons.append("name part must be non-empty")
    elif len(name) > 63:
        reasons.append(f"name part {too_long(63)}")
    if _qualified(name) is None:
        reasons.append(f"name part {_QUALIFIED_RULE}")
    return tuple(reasons)


def underscored_subdomain(text: str) -> Reasons:
    """Check a host name that may have underscores, as search domains may."""
    return checked(text, 253, _is_underscored(text) is not None, _UNDERSCORED_RULE, "characters")


def environment_name(text: str) -> Reasons:
    """Check the name of a variable by the rule from before all printable characters were allowed."""
    return (() if _is_environment_name(text) else (_ENVIRONMENT_RULE,)) + _dots(text)


def relaxed_environment_name(text: str) -> Reasons:
    return () if _is_relaxed_environment_name(text) else (_RELAXED_ENVIRONMENT_RULE,)


def configuration_key(text: str) -> Reasons:
    """Check a key of a ConfigMap or a Secret, which is also a file name."""
    return checked(
        text, 253, _is_configuration_key(text) is not None, _CONFIGURATION_KEY_RULE, "characters"
    ) + _dots(text)


def _dots(text: str) -> Reasons:
    """Refuse the names that a path takes for the directory itself, or for the one above."""
    if text in (".", ".."):
        return (f"must not be '{text}'",)
    return ("must not start with '..'",) if text.startswith("..") else ()


@lru_cache(maxsize=4096)
def port_name(text: str) -> Reasons:
    """Check the name of a container's or a service's port (an IANA service name)."""
    reasons = []
    if len(text) > 15:
        reasons.append(too_long(15, "characters"))
    if _is_port_name(text) is None:
        reasons.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= letter <= "z" for letter in text):
        reasons.append("must contain at least one letter (a-z)")
    if "--" in text:
        reasons.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        reasons.append("must not begin or end with a hyphen")
    return tuple(reasons)


def port_number(number: int) -> Reasons:
    return () if 1 <= number <= 65535 else ("must be between 1 and 65535, inclusive",)


def checked(text: str, limit: int, good: bool, rule: str, unit: str = "bytes") -> Reasons:
    """The reasons against a text: longer than `limit` characters, or not following a rule."""
    if good and len(text) <= limit:
        return ()
    return ((too_long(limit, unit),) if len(text) > limit else ()) + (() if good else (rule,))
