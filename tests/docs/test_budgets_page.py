"""The page about party-limits: its simulation of a budget prints what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hekla.cli import simulate

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/scheduler/party-limits.md").read_text()


def test_the_simulation_prints_what_the_page_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    ((command, output),) = re.findall(r"```\n\$ hekla simulate ([^\n]*)\n(.*?)```", PAGE, re.DOTALL)
    assert simulate.main(shlex.split(command)) == 0
    assert capsys.readouterr().out == output
