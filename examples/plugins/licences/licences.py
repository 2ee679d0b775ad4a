"""licences: a pod that names a licence goes only where the licence is installed.

The simple kind of plugin: it is asked about one pod and one node at a time.
"""

from __future__ import annotations

import msgspec

from hekla.engine.custom import Node, Pod, SimplePlugin
from hekla.engine.plugin import Arguments as PluginArguments

WANTS = "example.com/licence"


class Licences(SimplePlugin):
    name = "licences"
    weight = 2.0

    class Arguments(PluginArguments, frozen=True):
        label: str = msgspec.field(default="example.com/licences", name="licences.label")
        """The node label that lists licences, separated by dots (labels have no commas)."""

    def predicate(self, pod: Pod, node: Node) -> bool | str:
        wanted = pod.annotations.get(WANTS)
        if wanted is None or wanted in self.installed(node):
            return True
        return f"node(s) without the licence {wanted}"

    def score(self, pod: Pod, node: Node) -> float:
        """Keep nodes with licences for the pods that want one."""
        return 100.0 if bool(self.installed(node)) == (WANTS in pod.annotations) else 0.0

    def installed(self, node: Node) -> list[str]:
        return [name for name in node.labels.get(self.arguments.label, "").split(".") if name]
