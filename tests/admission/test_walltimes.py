"""A walltime that nobody can read is refused where it is written, not taken for none."""

from __future__ import annotations

import pytest

from tests.admission.objects import Tree, ask, denied, job, queue, task, template

WALLTIME, DEFAULT = "hekla.io/walltime", "hekla.io/default-walltime"
GOOD = ["1h30m", "90s", "5400", "1.5h"]
BAD = ["", "soon", "0", "0s", "-1h", "1 h", "1d", "inf", "9" * 400]


def says(tree: Tree, text: str, name: str = WALLTIME) -> Tree:
    return {**tree, "metadata": {**(tree.get("metadata") or {}), "annotations": {name: text}}}


def group(**metadata: object) -> Tree:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "group", "namespace": "default", **metadata},
        "spec": {"minMember": 1},
    }


def words(text: str, path: str = "", name: str = WALLTIME) -> str:
    return (
        f'{path}metadata.annotations[{name}]: Invalid value: "{text}": '
        "must be a duration such as 1h30m, or whole seconds"
    )


@pytest.mark.parametrize("text", GOOD)
def test_what_can_be_read_is_let_in(text: str) -> None:
    assert ask("/jobs/validate", says(job(), text)).allowed
    assert ask("/podgroups/validate", says(group(), text)).allowed
    assert ask("/queues/validate", says(queue("q"), text, DEFAULT)).allowed


@pytest.mark.parametrize("text", BAD)
def test_what_cannot_be_read_is_refused_with_its_field(text: str) -> None:
    assert words(text) in denied("/jobs/validate", says(job(), text))
    assert words(text) == denied("/podgroups/validate", says(group(), text))
    refused = denied("/queues/validate", says(queue("q"), text, DEFAULT))
    assert refused == words(text, name=DEFAULT)


def test_a_task_that_says_it_is_named() -> None:
    given = job(task("a"), task("b", template=says(template(), "soon")))
    assert words("soon", "spec.tasks[1].template.") in denied("/jobs/validate", given)


def test_an_update_is_asked_only_about_what_it_changes() -> None:
    bad, good = says(job(), "soon"), says(job(), "1h")
    assert ask("/jobs/validate", bad, bad).allowed
    assert ask("/jobs/validate", good, bad).allowed
    assert words("soon") == denied("/jobs/validate", bad, good)
    old, new = says(queue("q"), "soon", DEFAULT), says(queue("q", weight=3), "soon", DEFAULT)
    assert ask("/queues/validate", new, old).allowed


def test_a_group_that_a_controller_makes_says_what_its_owner_said() -> None:
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "old", "uid": "1"}
    assert ask("/podgroups/validate", says(group(ownerReferences=[owner]), "soon")).allowed
