"""The defaults that the server fills in (local-cluster 5).

There is one function for each kind, found here by (group, kind). It runs on create, after every
change by admission, and on update; it only adds what is missing.
"""

from __future__ import annotations

from collections.abc import Callable

from hekla.api.trees import Json
from hekla.local.apiserver.objects.defaults import core, others, workloads
from hekla.local.apiserver.objects.defaults.pod import pod

DEFAULTS: dict[tuple[str, str], Callable[[Json], None]] = {
    ("", "Pod"): pod,
    **core.DEFAULTS,
    **workloads.DEFAULTS,
    **others.DEFAULTS,
}
