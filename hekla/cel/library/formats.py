"""Named formats: `format.dns1123Label().validate(text)` returns nothing, or the reasons why a text
is invalid."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date

from hekla.api.text import syntax
from hekla.cel.errors import Failed
from hekla.cel.functions import function, method
from hekla.cel.library.urls import Url
from hekla.cel.types import FORMAT, STRING, list_of, optional_of
from hekla.cel.values import NONE, Optional, Timestamp

Reasons = Sequence[str]

_LABEL_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end "
    "with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)


@dataclass(frozen=True, slots=True)
class Format:
    kind = FORMAT.name
    name: str
    check: Callable[[str], Reasons] = field(compare=False)


def _label_1035(text: str) -> Reasons:
    return syntax.checked(
        text, 63, re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", text) is not None, _LABEL_1035
    )


def _prefix(check: Callable[[str], Reasons]) -> Callable[[str], Reasons]:
    """Check the prefix of a name, which may end in a dash."""
    return lambda text: check(f"{text[:-1]}a" if len(text) > 1 and text.endswith("-") else text)


def _uri(text: str) -> Reasons:
    try:
        Url.read(text)
    except Failed as error:
        return (str(error).removeprefix("URL parse error during conversion from string: "),)
    return ()


def _base64(text: str) -> Reasons:
    try:
        b64decode(text, validate=True)
    except ValueError:
        return ("invalid base64",)
    return ()


def _date(text: str) -> Reasons:
    try:
        if len(text) != 10:
            raise ValueError
        date.fromisoformat(text)
    except ValueError:
        return ("invalid date",)
    return ()


def _datetime(text: str) -> Reasons:
    try:
        Timestamp.read(text)
    except Failed:
        return ("invalid datetime",)
    return ()


def _uuid(text: str) -> Reasons:
    found = re.fullmatch(
        "(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", text
    )
    return () if found else ("does not match the UUID format",)


FORMATS = {
    name: Format(shown, check)
    for name, shown, check in (
        ("dns1123Label", "DNS1123Label", syntax.dns_label),
        ("dns1123Subdomain", "DNS1123Subdomain", syntax.dns_subdomain),
        ("dns1035Label", "DNS1035Label", _label_1035),
        ("qualifiedName", "QualifiedName", syntax.qualified_name),
        ("dns1123LabelPrefix", "DNS1123LabelPrefix", _prefix(syntax.dns_label)),
        ("dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", _prefix(syntax.dns_subdomain)),
        ("dns1035LabelPrefix", "DNS1035LabelPrefix", _prefix(_label_1035)),
        ("labelValue", "LabelValue", syntax.label_value),
        ("uri", "URI", _uri),
        ("uuid", "uuid", _uuid),
        ("byte", "byte", _base64),
        ("date", "date", _date),
        ("datetime", "datetime", _datetime),
    )
}


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _validate(named: Format, text: str) -> Optional:
    reasons = named.check(text)
    return Optional(list(reasons)) if reasons else NONE


def _declare(name: str, found: Format) -> None:
    function(f"format.{name}", (), FORMAT, lambda: found)


for _name, _found in FORMATS.items():
    _declare(_name, _found)
function("format.named", (STRING,), optional_of(FORMAT), _named)
method("validate", (FORMAT, STRING), optional_of(list_of(STRING)), _validate)
