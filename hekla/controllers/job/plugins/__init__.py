"""Job plugins: what `spec.plugins` may name, a module each.

They are applied in one fixed order, whatever the order in the manifest (Volcano's is random at
every call), so that the rank that pytorch sets is always the one that hcclrank reads.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from hekla.controllers.job.plugins.env import Env
from hekla.controllers.job.plugins.hcclrank import HcclRank
from hekla.controllers.job.plugins.mpi import Mpi
from hekla.controllers.job.plugins.plugin import Dependent, Plugin, PluginError
from hekla.controllers.job.plugins.pytorch import PyTorch
from hekla.controllers.job.plugins.ray import Ray
from hekla.controllers.job.plugins.ssh import Ssh
from hekla.controllers.job.plugins.svc import Svc
from hekla.controllers.job.plugins.tensorflow import TensorFlow

if TYPE_CHECKING:
    from hekla.api import batch

PLUGINS: dict[str, type[Plugin]] = {
    plugin.name: plugin for plugin in (Ssh, Svc, Env, TensorFlow, Mpi, PyTorch, Ray, HcclRank)
}

UNMARKED = frozenset({HcclRank.name})
"""Plugins that leave no entry in the job's list of controlled resources."""

__all__ = ["PLUGINS", "UNMARKED", "Dependent", "Plugin", "PluginError", "plugins_of"]


def plugins_of(job: batch.Job) -> list[Plugin]:
    """The plugins of a job, in the order in which they are applied.  Raises PluginError for a name
    that is not one."""
    asked = job.spec.plugins or {}
    for name in asked:
        if name not in PLUGINS:
            close = get_close_matches(name, PLUGINS, 1)
            raise PluginError(
                f"failed to get plugin {name}" + (f"; did you mean {close[0]}?" if close else "")
            )
    return [plugin(asked[name] or []) for name, plugin in PLUGINS.items() if name in asked]
