"""The policy file: what is wrong is named with its line, and the last good policy stays in force."""

from __future__ import annotations

import os

import pytest

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
