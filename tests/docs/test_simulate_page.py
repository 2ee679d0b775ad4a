"""The page about simulations: its examples are the files it names, and print what it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hekla.cli import simulate

ROOT = Path(__file__).parents[2]
SESSION = re.compile(r"```\n\$ hekla simulate ([^\n]*)\n(.*?)```", re.DOTALL)
PAGES = ["docs/claims.md", "docs/simulate.md", "docs/time.md"]


@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_the_page_shows(
    page: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    shown = SESSION.findall((ROOT / page).read_text())
    assert shown
    for command, output in shown:
        assert simulate.main(shlex.split(command)) == 0
        assert capsys.readouterr().out == output


@pytest.mark.parametrize("page", PAGES)
def test_yaml_stands_in_the_examples(page: str) -> None:
    examples = "".join(
        path.read_text() for path in sorted((ROOT / "examples/simulate").glob("*.yaml"))
    )
    for block in re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL):
        assert block in examples
