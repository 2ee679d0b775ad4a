"""What a rule calls settled (`Admission.settled`) says the same of two objects of one spec, whatever
their annotations are: the API server's create cache gives the second the answer for the first."""

from __future__ import annotations

from typing import Any

import pytest

from hekla.admission.registry import ADMISSIONS
from tests.admission.objects import Tree, ask, job, task

VALUES = ("", "x", "1h", "1", "true", "50%", "[]", "{}", '{"spec":{"minAvailable":1}}')
OBJECTS = {
    "jobs": [job(), job(task("a", 2), task("b", 3, minAvailable=1), minAvailable=3)],
    "podgroups": [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "group", "namespace": "default"},
            "spec": {"minMember": 2},
        }
    ],
}


class Asked(dict[str, Any]):
    """Annotations that note which of them are looked for."""

    names: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.names.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.names.add(str(key))
        return super().__contains__(key)


def with_annotations(tree: Tree, annotations: Tree) -> Tree:
    return {**tree, "metadata": {**tree["metadata"], "annotations": annotations}}


@pytest.mark.parametrize(
    "path", [one.path for one in ADMISSIONS.values() if one.resource in OBJECTS]
)
def test_no_annotation_changes_what_is_settled(path: str) -> None:
    settled = ADMISSIONS[path].settled
    for tree in OBJECTS[ADMISSIONS[path].resource]:
        Asked.names = set()
        plain = with_annotations(tree, Asked({"nobody.example/asks": "this"}))
        said = ask(path, plain)
        assert settled(plain), "an object like most others has to be settled"
        for name in Asked.names - {"nobody.example/asks"}:
            for value in VALUES:
                other = with_annotations(tree, {name: value})
                if settled(other):
                    assert ask(path, other) == said, f"{path}: {name}={value!r}"
