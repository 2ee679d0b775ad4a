"""What a field of a kind promises beyond its Python type: bounds, patterns, defaults, how lists
merge.

A promise stands once, in the annotation of the field (`Annotated[int, Rule(minimum=0)]`), and is
read by whoever needs it: the CRDs are made from it today.  Decoding never enforces a promise: what
is stored was checked by the API server, and a daemon that refuses to read an object that somebody
stored under an older rule is worse than one that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from hekla.api.text.quantity import LONGEST

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Validation:
    """A CEL rule of the API server, with the message for violations."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True)
class Rule:
    """Constraints of one field; None and empty mean no constraint.  Several rules on one field are
    merged."""

    required: bool = False
    default: Any = None
    format: str = ""
    minimum: int | None = None
    maximum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    pattern: str = ""
    enum: tuple[str, ...] = ()
    list_type: str = ""
    """`map`, `set` or `atomic`: how server-side apply merges a list, and which duplicates are
    refused."""
    list_keys: tuple[str, ...] = ()
    map_type: str = ""
    validations: tuple[Validation, ...] = ()
    items: Rule | None = None
    """Promises of each element of a list, or of each value of a map."""
    int_or_string: bool = False
    shape: str = ""
    """The field is kept as a raw tree in Python and described to the API server by the struct of
    this name."""


SUBDOMAIN_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)

Required = Annotated[T, Rule(required=True)]
Atomic = Annotated[T, Rule(list_type="atomic")]
NamedList = Annotated[list[T], Rule(list_type="map", list_keys=("name",))]

Int32 = Annotated[int, Rule(format="int32")]
Int64 = Annotated[int, Rule(format="int64")]
Count = Annotated[int, Rule(format="int32", minimum=0)]
"""A number of things: a 32-bit integer from 0 up."""
Time = Annotated[str, Rule(format="date-time")]
"""RFC 3339 text; "" where absent."""
NullableTime = Time | None
"""A time that Go programs write as null when it is not set, so that reading null must be cheap."""
Duration = str
"""Go duration text such as `1h30m`; "" where absent."""
Subdomain = Annotated[str, Rule(max_length=253, pattern=SUBDOMAIN_PATTERN)]
LabelName = Annotated[str, Rule(max_length=63, pattern=LABEL_PATTERN)]
Quantity = Annotated[
    str | int | float, Rule(int_or_string=True, pattern=QUANTITY_PATTERN, max_length=LONGEST)
]
ResourceList = dict[str, Quantity]
IntOrString = Annotated[int | str, Rule(int_or_string=True)]
PodTemplate = Annotated[dict[str, Any], Rule(shape="PodTemplateSpec")]
"""A pod template as the user wrote it: a raw tree, so that nothing is lost."""
