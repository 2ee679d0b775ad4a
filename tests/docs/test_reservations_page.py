"""The page about reservations: its objects are admitted, and its simulation prints what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from hekla.admission.registry import review
from hekla.admission.review import Settings, StaticLookup
from hekla.cli import simulate

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reservations.md").read_text()


def test_the_simulation_prints_what_the_page_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    ((command, output),) = re.findall(r"```\n\$ hekla simulate ([^\n]*)\n(.*?)```", PAGE, re.DOTALL)
    assert simulate.main(shlex.split(command)) == 0
    assert capsys.readouterr().out == output


def test_the_objects_of_the_page_are_admitted() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    lookup = StaticLookup(queues=[{"metadata": {"name": "training"}}])
    for tree in yaml.safe_load_all(block):
        verdict = review("/reservations/validate", "CREATE", tree, None, lookup, Settings())
        assert verdict.allowed, verdict.message
