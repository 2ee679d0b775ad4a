"""What a name may look like, and the sentence that says so when it does not (local-cluster 2.1).

Every rule is a function from the text to the reasons why it is refused; an empty tuple means that it is good.
"""

from __future__ import annotations

import re
from functools import lru_cache

LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{LABEL}(\.{LABEL})*"
QUALIFIED = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

_label = re.compile(LABEL).fullmatch
_subdomain = re.compile(SUBDOMAIN).fullmatch
_label_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?").fullmatch
_qualified = re.compile(QUALIFIED).fullmatch
_config_key = re.compile(r"[-._a-zA-Z0-9]+").fullmatch
_env_name = re.compile(r"[!-<>-~ ]+").fullmatch
_port_name = re.compile(r"[-a-z0-9]+").fullmatch

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    f"with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    f"alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
)
_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end "
    "with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{QUALIFIED}')"
)
_PREFIX_RULE = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
_LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

Reasons = tuple[str, ...]
GOOD: Reasons = ()


def longest(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def _checked(text: str, limit: int, good: bool, rule: str) -> Reasons:
    if len(text) <= limit:
        return GOOD if good else (rule,)
    return (longest(limit),) if good else (longest(limit), rule)


def dns_subdomain(text: str) -> Reasons:
    return _checked(text, 253, _subdomain(text) is not None, _SUBDOMAIN_RULE)


@lru_cache(maxsize=4096)
def dns_label(text: str) -> Reasons:
    if _label(text) is None and _subdomain(text) is not None:
        return _checked(text, 63, False, "must not contain dots")
    return _checked(text, 63, _label(text) is not None, _LABEL_RULE)


def dns_1035_label(text: str) -> Reasons:
    return _checked(text, 63, _label_1035(text) is not None, _LABEL_1035_RULE)


def path_segment(text: str) -> Reasons:
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{sign}'" for sign in "/%" if sign in text)


def label_value(text: str) -> Reasons:
    return _checked(text, 63, not text or _qualified(text) is not None, _LABEL_VALUE_RULE)


def qualified_name(text: str) -> Reasons:
    """`name` or `prefix/name`, as label keys, finalizers and resource names are written."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return (f"a qualified name {_QUALIFIED_RULE}{_PREFIX_RULE}",)
    reasons: list[str] = []
    if slash:
        if not prefix:
            reasons.append("prefix part must be non-empty")
        else:
            reasons += [f"prefix part {reason}" for reason in dns_subdomain(prefix)]
    if not name:
        reasons.append("name part must be non-empty")
    elif len(name) > 63:
        reasons.append(f"name part {longest(63)}")
    if _qualified(name) is None:
        reasons.append(f"name part {_QUALIFIED_RULE}")
    return tuple(reasons)


def config_key(text: str) -> Reasons:
    """A key of a ConfigMap or Secret: also a file name."""
    reasons = []
    if len(text) > 253:
        reasons.append(longest(253))
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
