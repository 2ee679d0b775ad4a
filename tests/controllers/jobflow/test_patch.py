"""What a flow may change in a template."""

from hekla.controllers.jobflow.patch import patched


def test_tasks_and_containers_merge_by_name() -> None:
    template = {
        "queue": "a",
        "plugins": {"svc": [], "env": []},
        "tasks": [
            {
                "name": "work",
                "replicas": 2,
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "nodeSelector": {"disk": "ssd"},
                        "containers": [
                            {
                                "name": "main",
                                "image": "one",
                                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                            },
                            {"name": "side", "image": "two"},
                        ],
                    }
                },
            },
            {"name": "rest", "replicas": 1},
        ],
    }
    change = {
        "queue": "b",
        "plugins": {"svc": ["--x=1"]},
        "tasks": [
            {
                "name": "work",
                "template": {
                    "spec": {
                        "nodeSelector": {"zone": "z"},
                        "containers": [
                            {"name": "main", "image": "three", "env": [{"name": "B", "value": "9"}]}
                        ],
                    }
                },
            },
            {"name": "more", "replicas": 5},
        ],
    }
    made = patched(template, change)
    assert made["queue"] == "b" and made["plugins"] == {"svc": ["--x=1"], "env": []}
    work, rest, more = made["tasks"]
    assert (work["replicas"], rest, more) == (
        2,
        {"name": "rest", "replicas": 1},
        {"name": "more", "replicas": 5},
    )
    spec = work["template"]["spec"]
    assert spec["restartPolicy"] == "Never" and spec["nodeSelector"] == {"disk": "ssd", "zone": "z"}
    assert spec["containers"] == [
        {
            "name": "main",
            "image": "three",
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "9"}],
        },
        {"name": "side", "image": "two"},
    ]
    assert template["queue"] == "a", "the template itself is not touched"


def test_what_is_one_thing_is_replaced() -> None:
    old = {
        "policies": [{"event": "PodFailed", "action": "RestartJob"}],
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
    }
    new = {"policies": [{"event": "*", "action": "AbortJob"}], "networkTopology": {"mode": "soft"}}
    assert patched(old, new) == new
