"""Caches for pods of one template give the same answers as without a cache."""

from __future__ import annotations

import random
from copy import deepcopy

from hekla.api.bounded import BoundedCache
from hekla.api.trees import Json
from hekla.local.apiserver.objects.encoding import fields
from hekla.local.apiserver.objects.merging import topology
from hekla.local.apiserver.objects.merging.ownership import UPDATE, Owner, Scope
from hekla.local.apiserver.objects.usage import usage
from hekla.local.apiserver.objects.validation import pod as rules
from hekla.local.apiserver.storage.managed_fields import ManagedFields


def some_pod(dice: random.Random) -> Json:
    """One of few templates, with what differs between its pods, and now and then something wrong."""
    token = "kube-api-access-" + "".join(dice.choices("abc9", k=5))
    container: Json = {
        "name": "main",
        "image": dice.choice(["a", "b", ""]),
        "imagePullPolicy": "Always",
        "terminationMessagePolicy": "File",
        "env": [
            {"name": f"E{n}", "value": str(dice.randint(0, 2))} for n in range(dice.randint(0, 2))
        ],
        "resources": {"requests": {"cpu": dice.choice(["1", "2"])}, "limits": {"cpu": "2"}},
        "volumeMounts": [{"name": dice.choice([token, token, token, "other"]), "mountPath": "/t"}],
    }
    spec: Json = {
        "restartPolicy": dice.choice(["Always", "Never", "Sometimes"]),
        "dnsPolicy": "ClusterFirst",
        "containers": [container],
        "volumes": [{"name": token, "emptyDir": {}}],
    }
    if dice.random() < 0.5:
        spec["hostname"] = dice.choice(["one", "two", "Not A Name"])
    if dice.random() < 0.3:
        spec["hostAliases"] = [{"ip": f"10.0.0.{dice.randint(1, 2)}", "hostnames": ["x"]}]
    if dice.random() < 0.2:
        spec["initContainers"] = [{**deepcopy(container), "name": "first"}]
    if dice.random() < 0.2:
        spec["volumes"].append({"name": "\x00" if dice.random() < 0.5 else "*", "emptyDir": {}})
    return {"metadata": {"name": "p", "labels": {"a": dice.choice("xy")}}, "spec": spec}


def test_rules_say_the_same_of_a_known_template() -> None:
    dice = random.Random(1)
    right = 0
    for _ in range(3000):
        tree = some_pod(dice)
        warm = rules.create(deepcopy(tree))
        cold_memory, rules._validated_specs = (
            rules._validated_specs,
            BoundedCache(rules.MAX_VALIDATED_SPECS),
        )
        cold = rules.create(deepcopy(tree))
        rules._validated_specs = cold_memory
        assert warm == cold, tree
        right += not cold
    assert 100 < right < 2900 and rules._validated_specs


def test_owners_of_a_known_template_are_those_of_the_object() -> None:
    described = fields.root("", "v1", "Pod")
    assert described is not None
    scope = Scope(
        topology.of_kind(described.section, described.name),
        "v1",
        frozenset({"status"}),
        lambda version, tree: None,
    )
    dice, owner, book = random.Random(2), Owner("m", UPDATE, "", "v1"), ManagedFields()
    for _ in range(2000):
        tree = some_pod(dice)
        known, stamps = book.created(scope, tree, owner)
        fresh, others = ManagedFields().created(scope, tree, owner)
        assert known is not None and fresh is not None
        assert [
            head.with_keys(stamps[known.times.size :].split(b"\0")) for head in known.entries
        ] == [head.with_keys(others[fresh.times.size :].split(b"\0")) for head in fresh.entries]


def test_a_known_template_counts_for_what_it_asks() -> None:
    dice = random.Random(3)
    for _ in range(500):
        tree = some_pod(dice)
        found = usage("pods", tree)
        containers = tree["spec"]["containers"]
        cpu = max(
            sum(int(c["resources"]["requests"]["cpu"]) for c in containers),
            *[
                int(c["resources"]["requests"]["cpu"])
                for c in tree["spec"].get("initContainers", ())
            ],
            0,
        )
        assert str(found["requests.cpu"]) == str(cpu) and str(found["limits.cpu"]) == "2"
