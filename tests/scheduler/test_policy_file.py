"""The policy file: what is wrong is named with its line, and the last good policy stays in force."""

from __future__ import annotations

import os

import pytest

from hekla.scheduler import policy_file
from hekla.scheduler.policy_file import PolicyFile, PolicyFileError, parse

GOOD = """\
actions: "enqueue, allocate"
tiers:
- plugins:
  - name: gang
  - name: binpack
"""


def test_a_misspelt_plugin_is_named_with_its_line_and_its_neighbour():
    with pytest.raises(PolicyFileError) as caught:
        parse(GOOD.replace("name: gang", "name: gnag"), "policy.yaml")

    assert str(caught.value).startswith("policy.yaml:4: ")
    assert '"gnag"' in str(caught.value)
    assert '"gang"' in str(caught.value)


def test_what_is_no_yaml_is_said_to_be_none():
    with pytest.raises(PolicyFileError, match=r"policy\.yaml:\d+: not YAML"):
        parse("actions: [", "policy.yaml")


def test_a_bad_change_leaves_the_last_good_policy_in_force(tmp_path, caplog):
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    file = PolicyFile(str(path))
    assert file.policy.actions == ("enqueue", "allocate")

    path.write_text("actions: alocate\n")
    os.utime(path, (1, 1))

    assert not file.changed()
    assert file.policy.actions == ("enqueue", "allocate")
    assert "still the one of" in caplog.text
    assert "alocate" in file.problem


def test_a_good_change_is_taken_without_a_restart(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    file = PolicyFile(str(path))

    path.write_text(GOOD.replace("enqueue, allocate", "allocate, backfill"))
    os.utime(path, (1, 1))

    assert file.changed()
    assert file.policy.actions == ("allocate", "backfill")
    assert not file.changed()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD + "actions: allocate\n", 'policy.yaml:6: key "actions" stands twice'),
        (GOOD + "    weight: 1\n    weight: 2\n", 'policy.yaml:7: key "weight" stands twice'),
        (GOOD.replace("- plugins:", "- plugin:"), 'policy.yaml:3: a tier: key "plugin" does not exist; did you mean "plugins"?'),
        (GOOD + "    arguments: [1]\n", "policy.yaml:6: arguments = [1]: a mapping"),
        (GOOD + "    arguments: {binpack.weight: .nan}\n", "policy.yaml:6: binpack.weight = nan: a finite number"),
        (GOOD.replace("name: gang", "name: [gang]"), "policy.yaml:4: plugin \"['gang']\" does not exist"),
        (GOOD + "tieBreaking: 4\n", "policy.yaml:6: tieBreaking = 4: a mapping"),
        (GOOD + "tieBreaking: {sed: 4}\n", 'policy.yaml:6: tieBreaking: key "sed" does not exist; did you mean "seed"?'),
        (GOOD + "tieBreaking: {seed: -1}\n", "policy.yaml:6: seed = -1: a whole number from 0 up"),
        (GOOD + "metrics: [prometheus]\n", "policy.yaml:6: metrics = ['prometheus']: a mapping"),
        (GOOD + "2020-01-01: 1\n", 'policy.yaml:6: key "2020-01-01" does not exist'),
        (GOOD + "configurations:\n- name: preempt\n  argument: {}\n",
         'policy.yaml:8: the configuration of preempt: key "argument" does not exist; did you mean "arguments"?'),
        (GOOD + "when: 2020-13-45\n", "policy.yaml: not YAML: month must be in 1..12"),
        (GOOD + "much: " + "9" * 5000, "policy.yaml: not YAML: Exceeds the limit"),
        (GOOD.replace('"enqueue, allocate"', '""'), "policy.yaml:1: actions: at least one has to be named; known are allocate"),
    ],
)  # fmt: skip
def test_whatever_means_nothing_is_named_with_its_line_and_the_last_policy_stays(
    tmp_path, text, said
):
    with pytest.raises(PolicyFileError) as caught:
        parse(text, "policy.yaml")
    assert str(caught.value).startswith(said)

    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    file = PolicyFile(str(path))
    path.write_text(text)
    os.utime(path, (1, 1))
    assert not file.changed()
    assert file.policy.actions == ("enqueue", "allocate")
    assert said.removeprefix("policy.yaml") in file.problem


def test_a_fault_of_the_reader_leaves_the_last_policy_in_force_too(tmp_path, monkeypatch):
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    file = PolicyFile(str(path))
    monkeypatch.setattr(policy_file, "parse", lambda *given: 1 / 0)
    os.utime(path, (1, 1))

    assert not file.changed()
    assert file.policy.actions == ("enqueue", "allocate")
    assert file.problem == f"{path}: ZeroDivisionError: division by zero"
