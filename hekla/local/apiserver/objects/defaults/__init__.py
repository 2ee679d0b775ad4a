"""What the server fills in where a client said nothing (local-cluster 5).

One function a kind, found here by group and kind.  They run on create, after every admission change
and on update, so each only adds what is missing.
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
