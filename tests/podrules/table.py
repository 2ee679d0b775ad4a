"""Templates with what Kubernetes 1.36.1 itself had against them, in `templates.json`, and the three
doors that judge them here.

A row has the template and the errors of each door where they differ: `served`, what its API server
says of a PodTemplate; `webhook`, what its library says with no feature switched on but the
resources of pods (`levels`), as Volcano's webhook asks it, `name` being the task's; `pod`, what its
API server says of a pod like that.  Three things are stricter here on purpose at the webhook:
blanks around an image and a privileged container that may not escalate, which the pods would be
refused for, and a negative grace, which they would lose.  Refused values that are objects are shown
as the API writes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from hekla.admission.rules import podtemplates
from hekla.api.trees import Json
from hekla.local.apiserver.objects import builtin
from hekla.local.apiserver.objects.kind import FieldError

ROWS: list[Json] = json.loads(Path(__file__).with_name("templates.json").read_text())
_KINDS = {kind.kind: kind for kind in builtin.kinds() if (kind.group, kind.version) == ("", "v1")}


def as_pod(error: str) -> str:
    """What is said of a template, said of a pod."""
    return re.sub(r"^template\.(?=labels|annotations)", "metadata.", error).replace(
        "template.spec", "spec", 1
    )


def expected(row: Json, door: str) -> list[str]:
    served: list[str] = row["served"]
    if door in row:
        return list(row[door])
    return [as_pod(error) for error in served] if door == "pod" else served


def webhook(template: Json, name: str = "task-1", levels: bool = True) -> list[str]:
    return podtemplates.problems(json.loads(json.dumps(template)), name, levels)


def served(template: Json) -> list[str]:
    return _strategy("PodTemplate", {"template": template})


def pod(template: Json) -> list[str]:
    return _strategy("Pod", _pod(template))


def _pod(template: Json) -> Json:
    meta = {"name": "p", "namespace": "default", **template.get("metadata", {})}
    return {"metadata": meta, "spec": template.get("spec", {})}


def _read(name: str, body: Json) -> Json:
    """An object as the API server reads it, with its defaults."""
    kind = _KINDS[name]
    assert kind.decode is not None
    text = json.dumps(
        {
            "apiVersion": "v1",
            "kind": name,
            "metadata": {"name": "p", "namespace": "default"},
            **body,
        }
    )
    tree = kind.decode(text.encode(), "application/json", "Ignore").tree
    kind.strategy.default(tree)
    return tree


def _strategy(name: str, body: Json) -> list[str]:
    """What the API server has against a new object."""
    tree, strategy = _read(name, body), _KINDS[name].strategy
    strategy.prepare_create(tree)
    return [str(error) for error in strategy.validate_create(tree)]


def updated(
    template: Json, before: Json, change: Callable[[Json, Json], list[FieldError]] | None = None
) -> list[str]:
    """What the API server has against a change of a pod; `change` is that of a subresource."""
    kind = _KINDS["Pod"]
    new, old = (_read("Pod", _pod(tree)) for tree in (template, before))
    if change is not None:
        return [str(error) for error in change(new, old)]
    kind.strategy.prepare_update(new, old)
    return [str(error) for error in kind.strategy.validate_update(new, old)]
