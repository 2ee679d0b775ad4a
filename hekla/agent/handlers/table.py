"""The handlers of pods, in the order in which they run, with what each writes and takes back.

Resources goes before CPUBurst, which needs the quota that it writes, and after CPUQoS, which has to
end an offline pod's idleness before its share can be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hekla.agent.cgroups import Write, taken_back
from hekla.agent.features import Feature
from hekla.agent.handlers import (
    cpu_burst,
    cpu_qos,
    memory_qos,
    memory_qos_v2,
    network_qos,
    resources,
)
from hekla.agent.handlers.context import Context
from hekla.agent.pods import Pod

Writes = Callable[[Pod, Context], Iterable[Write]]


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What one feature makes of a pod: files and their values."""

    feature: Feature
    writes: Writes
    undo: Writes


def _undoing(writes: Writes) -> Writes:
    def undo(pod: Pod, context: Context) -> Iterator[Write]:
        return taken_back(writes(pod, context))

    return undo


HANDLERS = (
    PodSettings(Feature.CPU_QOS, cpu_qos.writes, cpu_qos.undo),
    PodSettings(Feature.RESOURCES, resources.writes, _undoing(resources.writes)),
    PodSettings(Feature.CPU_BURST, cpu_burst.writes, _undoing(cpu_burst.writes)),
    PodSettings(Feature.MEMORY_QOS, memory_qos.writes, _undoing(memory_qos.writes)),
    PodSettings(Feature.MEMORY_QOS_V2, memory_qos_v2.writes, _undoing(memory_qos_v2.writes)),
    PodSettings(Feature.NETWORK_QOS, network_qos.writes, _undoing(network_qos.writes)),
)
