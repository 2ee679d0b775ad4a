"""A task's pod template, judged as the API server will judge the pods made from it.

Reference: api-and-admission 5.3.5.  A template that would give refused pods is refused with the
Job, where its author still sees it.  The rules are everybody's (`hekla/podrules`); what Volcano's
webhook knows of Kubernetes has no feature switched on. Defaults of the API server are taken as
given, never written back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hekla.admission.review import Tree
from hekla.api.bounded import BoundedCache
from hekla.api.text.fielderrors import required
from hekla.api.text.fieldrules import Errors, not_negative
from hekla.api.text.quantity import ZERO, Quantity
from hekla.api.text.syntax import dns_subdomain
from hekla.podrules import spec as rules
from hekla.podrules.options import Options
from hekla.podrules.resources import is_whole

LARGEST_REMEMBERED, MOST_REMEMBERED = 16 * 1024, 256
"""Bytes of a template, and how many of them."""
_known: BoundedCache[tuple[bytes, str, bool], list[str]] = BoundedCache(MOST_REMEMBERED)


def problems(template: Tree, name: str, pod_level_resources: bool) -> list[str]:
    """All field errors of a template.  Paths begin with `template`; the object is named after its
    task.

    Thousands of jobs come from a few templates, so errors are cached by the template's bytes.  The
    caller must not change the list.
    """
    key = msgspec.json.encode(template), name, pod_level_resources
    found = _known.get(key)
    if found is None:
        found = [str(error) for error in _problems(template, name, pod_level_resources)]
        if len(key[0]) <= LARGEST_REMEMBERED:
            _known[key] = found
    return found


def _problems(template: Tree, name: str, pod_level_resources: bool) -> Errors:
    found = Errors()
    if not name:
        found.append(required("metadata.name", "name or generateName is required"))
    else:
        found.malformed("metadata.name", name, dns_subdomain(name))
    rules.template(
        dict(template), "template", Options(features=False, resources=pod_level_resources), found
    )
    spec = template.get("spec") or {}
    # Of what follows a template is told nothing by Kubernetes: its pods would be refused, or lose
    # it.
    rules.images(spec, "template.spec", found)
    not_negative(
        spec.get("terminationGracePeriodSeconds"),
        "template.spec.terminationGracePeriodSeconds",
        found,
    )
    return found


def is_whole_cpu(amount: Any) -> bool:
    """Whether an amount of cpu is a whole number other than zero."""
    value = Quantity.parse(amount)
    return is_whole(value) and value > ZERO
