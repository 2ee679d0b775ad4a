"""Queue: defaults, and the checks of a queue by itself.  Reference: api-and-admission 5.3.7, 5.3.8
A and DELETE.

Checks against its parent and children are in `queuetree`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from hekla.admission.review import (
    DEFAULT_QUEUE,
    ROOT_QUEUE,
    Patch,
    Review,
    Tree,
    annotations_of,
    name_of,
    queue_not_found,
    spec_of,
    status_of,
    with_spec,
)
from hekla.admission.rules import queuetree, walltimes
from hekla.admission.rules.fielderrors import aggregate, invalid
from hekla.api.names import HIERARCHY, HIERARCHY_WEIGHTS
from hekla.api.text.quantity import Quantity
from hekla.api.text.quoting import quoted
from hekla.podrules.resources import is_integer, is_whole

STATES = ("", "Open", "Closed")

_DIGITS, _HEX = r"[0-9](?:_?[0-9])*", r"[0-9a-fA-F](?:_?[0-9a-fA-F])*"
_DECIMAL = re.compile(rf"[+-]?(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(rf"[+-]?0[xX](?:_?{_HEX}\.?(?:{_HEX})?|\.{_HEX})[pP][+-]?[0-9]+")
_WORD = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE)


def mutate(review: Review) -> Patch | None:
    spec, annotations = spec_of(review.object), annotations_of(review.object)
    hierarchy, weights = annotations.get(HIERARCHY) or "", annotations.get(HIERARCHY_WEIGHTS) or ""
    patch: Patch = []
    if hierarchy and weights and not hierarchy.startswith(ROOT_QUEUE):
        for key, value in ((HIERARCHY, f"root/{hierarchy}"), (HIERARCHY_WEIGHTS, f"1/{weights}")):
            patch.append(
                {
                    "op": "add",
                    "path": "/metadata/annotations/" + key.replace("/", "~1"),
                    "value": value,
                }
            )
    if spec.get("reclaimable") is None:
        patch.append({"op": "add", "path": "/spec/reclaimable", "value": True})
    if not spec.get("weight"):
        patch.append({"op": "add", "path": "/spec/weight", "value": 1})
    return with_spec(review.object, patch)


def validate(review: Review) -> str:
    if review.operation == "DELETE":
        return deletion_problem(review)
    walltime = walltimes.queue_problem(review.object, review.old)
    problem = aggregate(
        [
            *_resources(spec_of(review.object)),
            *_state(review.object),
            *_hierarchy(review),
            *([walltime] if walltime else []),
        ]
    )
    return problem or queuetree.problem(review)


def _resources(spec: Tree) -> Iterator[str]:
    """Check that amounts are quantities, and that guarantee <= deserved <= capability."""
    guarantee = (spec.get("guarantee") or {}).get("resource") or {}
    lists: dict[str, Any] = {
        "capability": spec.get("capability") or {},
        "deserved": spec.get("deserved") or {},
        "guarantee.resource": guarantee,
    }
    for field, amounts in lists.items():
        for name, amount in sorted(amounts.items()):
            value, path = Quantity.parse(amount), f"requestBody.spec.{field}.{name}"
            if value < ZERO:
                yield invalid(path, str(value), "must be greater than or equal to 0")
            if is_integer(name) and not is_whole(value):
                yield invalid(path, str(value), "must be an integer")
    deserved = {name: Quantity.parse(amount) for name, amount in lists["deserved"].items()}
    for name, amount in sorted(guarantee.items()):
        floor, given = Quantity.parse(amount), deserved.get(name)
        if given is None:
            yield invalid(
                f"requestBody.spec.deserved.{name}",
                "<nil>",
                f"deserved[{name}] must be >= guarantee[{name}]={floor}",
            )
        elif given < floor:
            text = f"deserved[{name}]={given} must be >= guarantee[{name}]={floor}"
            yield invalid(f"requestBody.spec.deserved.{name}", str(given), text)
    for name, given in sorted(deserved.items()):
        if name in lists["capability"]:
            cap = Quantity.parse(lists["capability"][name])
            if given > cap:
                text = f"deserved[{name}]={given} must be <= capability[{name}]={cap}"
                yield invalid(f"requestBody.spec.deserved.{name}", str(given), text)


ZERO = Quantity.parse(0)


def _state(queue: Tree) -> Iterator[str]:
    state = status_of(queue).get("state") or ""
    if state not in STATES:
        yield invalid("requestBody.spec.state", state, "queue state must be in [Open Closed]")


def _hierarchy(review: Review) -> Iterator[str]:
    """The first error of the hierarchy annotations, if one of them is set."""
    annotations = annotations_of(review.object)
    hierarchy, weights = annotations.get(HIERARCHY) or "", annotations.get(HIERARCHY_WEIGHTS) or ""
    if not hierarchy and not weights:
        return
    path = "requestBody.metadata.annotations"
    parts = weights.split("/")
    if len(hierarchy.split("/")) != len(parts):
        yield invalid(
            path, hierarchy, f"{HIERARCHY} must have the same length with {HIERARCHY_WEIGHTS}"
        )
        return
    for weight in parts:
        number, problem = weight_of(weight)
        if problem:
            text = f"{weight} in the {weights} is invalid number: strconv.ParseFloat: parsing {quoted(weight)}: {problem}"
            yield invalid(path, weights, text)
            return
        if number <= 0:
            yield invalid(path, weights, f"{weight} in the {weights} must be larger than 0")
            return
    for other in review.lookup.queues():
        theirs = annotations_of(other).get(HIERARCHY) or ""
        if theirs and name_of(other) != review.name and theirs.startswith(f"{hierarchy}/"):
            text = f"{hierarchy} is not allowed to be in the sub path of {theirs} of queue {name_of(other)}"
            yield invalid(path, hierarchy, text)
            return


def weight_of(text: str) -> tuple[float, str]:
    """A weight as a number (decimal, hexadecimal with an exponent, or a word), and its error."""
    if _DECIMAL.fullmatch(text):
        number = float(text)
        return number, "value out of range" if math.isinf(number) else ""
    if _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(text.replace("_", "")), ""
        except OverflowError:
            return 0, "value out of range"
    if _WORD.fullmatch(text):
        return float(text), ""
    return 0, "invalid syntax"


def deletion_problem(review: Review) -> str:
    name = review.name
    if name in (DEFAULT_QUEUE, ROOT_QUEUE):
        return f"`{name}` queue can not be deleted"
    queue = review.lookup.queue(name)
    if queue is None:
        return queue_not_found(name)
    pods = queuetree.allocated_pods(queue)
    if review.settings.queue_allocated_pods_check and pods:
        return f"queue {name} cannot be deleted because it has allocated Pods: {pods}"
    children = [name_of(child) for child in review.lookup.children(name)]
    if children:
        return f"queue {name} can not be deleted because it has {len(children)} child queues: {', '.join(children)}"
    return ""
