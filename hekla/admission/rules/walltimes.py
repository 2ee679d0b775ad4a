"""Annotations that say how long jobs run: one that cannot be read is refused, because the job would
count as endless and nobody would know why."""

from __future__ import annotations

from hekla.admission.review import Tree, annotations_of
from hekla.admission.rules.fielderrors import invalid
from hekla.api.names import DEFAULT_WALLTIME, WALLTIME
from hekla.api.text.walltimes import FORM, read_walltime


def problem(tree: Tree, old: Tree | None = None, at: str = "", name: str = WALLTIME) -> str:
    """What is wrong with the walltime in an object's metadata; "" where nothing is.

    `at`: the object's path, with a dot behind it.  What stood in `old` before is let be.
    """
    text = annotations_of(tree).get(name)
    if text is None or (old is not None and annotations_of(old).get(name) == text):
        return ""
    try:
        read_walltime(text)
    except ValueError:
        return invalid(f"{at}metadata.annotations[{name}]", text, f"must be {FORM}")
    return ""


def queue_problem(queue: Tree, old: Tree | None) -> str:
    """The same of what a queue says for its jobs that say nothing."""
    return problem(queue, old, name=DEFAULT_WALLTIME)
