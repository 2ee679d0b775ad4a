"""What a name may look like, and the reasons, in Kubernetes' own words, why one is refused.

Each function takes a text and gives the reasons against it; an empty tuple means that it is good.
"""

from __future__ import annotations

import re

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
    f"must consist of {_ALPHANUMERIC} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{QUALIFIED}')"
)
_LABEL_VALUE_RULE = (
    f"a valid label must be an empty string or consist of {_ALPHANUMERIC} (e.g. 'MyValue',  or 'my_value',  or '12345', "
    f"regex used for validation is '({QUALIFIED})?')"
)

Reasons = tuple[str, ...]


def too_long(limit: int, unit: str = "bytes") -> str:
    return f"must be no more than {limit} {unit}"


def dns_label(text: str) -> Reasons:
    """One part of a host name, up to 63 characters."""
    return checked(text, 63, is_label(text) is not None, _LABEL_RULE, "characters")


def dns_subdomain(text: str) -> Reasons:
    """A host name, up to 253 characters: what most objects may be called."""
    return checked(text, 253, is_subdomain(text) is not None, _SUBDOMAIN_RULE, "characters")


def label_value(text: str) -> Reasons:
    return checked(text, 63, not text or _qualified(text) is not None, _LABEL_VALUE_RULE)


def qualified_name(text: str) -> Reasons:
    """The key of a label: a name with, perhaps, a subdomain and a slash before it."""
    prefix, slash, name = text.partition("/")
    reasons: list[str] = []
    if not slash:
        name = text
    elif "/" in name:
        return (f"a valid label key {_QUALIFIED_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    elif not prefix:
        reasons.append("prefix part must be non-empty")
    else:
        reasons += [f"prefix part {reason}" for reason in checked(prefix, 253, is_subdomain(prefix) is not None, _SUBDOMAIN_RULE)]
    if not name:
        reasons.append("name part must be non-empty")
    elif len(name) > 63:
        reasons.append(f"name part {too_long(63)}")
    if _qualified(name) is None:
        reasons.append(f"name part {_QUALIFIED_RULE}")
    return tuple(reasons)


def checked(text: str, limit: int, good: bool, rule: str, unit: str = "bytes") -> Reasons:
    """The reasons against a text that may have `limit` characters and does, or does not, follow a rule."""
    if good and len(text) <= limit:
        return ()
    return ((too_long(limit, unit),) if len(text) > limit else ()) + (() if good else (rule,))
