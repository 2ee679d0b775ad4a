"""The node graph: kept up to date by events it equals one that is built anew."""

from __future__ import annotations

import random
from typing import Any

import pytest

from hekla.api.names import MIRROR_POD
from hekla.api.trees import Json
from hekla.local.apiserver.auth import nodegraph
from hekla.local.apiserver.auth.nodegraph import NodeGraph, references, volume_secrets
from hekla.local.apiserver.storage.rows import Event, Row, encode

NODES, NAMES = ("a", "b"), ("x", "y", "z")


class Pods:
    """The collection of pods, as far as the graph looks at it."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.positions = {"spec.nodeName": 0}
        self.listeners: set[Any] = set()

    def put(self, name: str, tree: Json | None, node: str = "", uid: str = "") -> None:
        key = f"n/{name}"
        if tree is None:
            row, kind = self.rows.pop(key), "DELETED"
        else:
            row = self.rows[key] = Row(1, "n", name, uid, 1, encode(tree), {}, (node,), (None, b""))
            kind = "MODIFIED"
        for listener in list(self.listeners):
            listener([Event(kind, 1, row, None, 0.0)])


class Registry:
    def __init__(self) -> None:
        self.pods = Pods()

    def __getitem__(self, plural: str) -> Any:
        return self

    @property
    def collection(self) -> Pods:
        return self.pods

    def get(self, *place: str) -> None:
        return None


def pod(name: str, *, secrets: list[str], later: list[str]) -> Json:
    volumes = [{"name": each, "secret": {"secretName": each}} for each in secrets]
    debugging = [{"name": each, "envFrom": [{"secretRef": {"name": each}}]} for each in later]
    return {
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"volumes": volumes, "ephemeralContainers": debugging},
    }


@pytest.mark.parametrize("seed", range(5))
def test_followed_it_is_what_it_would_be_anew(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodegraph, "MAX_PENDING_CHANGES", 8)
    chance, registry = random.Random(seed), Registry()
    graph = NodeGraph(registry)
    known: dict[str, tuple[str, str, list[str]]] = {}
    for step in range(400):
        name = f"p{chance.randrange(6)}"
        if name in known and chance.random() < 0.3:
            del known[name]
            registry.pods.put(name, None)
        else:
            node, uid, secrets = known.get(name) or ("", str(step), chance.sample(NAMES, 2))
            node = node or chance.choice(("", *NODES))
            known[name] = node, uid, secrets
            later = chance.sample(NAMES, chance.randrange(2))
            registry.pods.put(name, pod(name, secrets=secrets, later=later), node, uid)
        if chance.random() < 0.4:
            anew = NodeGraph(registry)
            for node in NODES:
                for wanted in NAMES:
                    assert graph.names(node, "secrets", "n", wanted) is anew.names(
                        node, "secrets", "n", wanted
                    ), (step, node, wanted)


def test_a_mirror_names_nothing() -> None:
    tree = pod("m", secrets=["x"], later=[])
    assert ("secrets", "n", "x") in references(tree)
    tree["metadata"]["annotations"] = {MIRROR_POD: "1"}
    assert references(tree) == frozenset()


def test_of_a_volumes_secrets_nodes_see_their_own() -> None:
    csi = {"nodeStageSecretRef": {"name": "stage"}, "controllerExpandSecretRef": {"name": "grow"}}
    assert volume_secrets({"spec": {"claimRef": {"namespace": "n"}, "csi": csi}}) == {
        ("n", "stage")
    }
