"""The scoreboard: each row has a source and a figure that somebody measures, and the page is made of
what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.__main__ import MODULES, aims
from benchmarks.figure import Figure
from benchmarks.scoreboard import board


def test_the_page_is_what_was_measured() -> None:
    """`python -m benchmarks scoreboard --write` makes it anew."""
    assert board.PAGE.read_text() == board.page(board.published(), *board.measured())


def test_every_row_has_a_figure_that_is_measured_or_aimed_at() -> None:
    known = {name for module in MODULES for name in import_module(module).FIGURES}
    known |= {aim.name for aim in aims()}
    assert [row.figure for row in board.published() if row.figure not in known] == []


def test_every_source_has_a_row() -> None:
    assert {row.source for row in board.published()} == set(board.SOURCES)


def test_a_row_without_a_source_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "published.tsv"
    table.write_text("# what\nKueue\tkueue.wall\t1\ts\tall of it\thearsay\tnothing\n")
    monkeypatch.setattr(board, "PUBLISHED", table)
    with pytest.raises(ValueError, match=r"published.tsv:2: .*with a source out of given"):
        board.published()


def test_what_was_not_measured_again_keeps_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One table after the other, each written into the page."""
    monkeypatch.setattr(board, "MEASURED", tmp_path / "measured.json")
    monkeypatch.setattr(board, "PAGE", tmp_path / "scoreboard.md")

    def measure(names: set[str], paths: Mapping[str, Path]) -> Iterator[Figure]:
        for name in sorted(names):
            if name != "pollux.las" or "pollux" in paths:
                yield Figure(name, float(len(name)), "s", "made up")

    assert board.main(["kai", "--write"], measure) == 0
    assert board.main(["pollux", "gavel", "--write"], measure) == 0
    found, _ = board.measured()
    assert found == {
        "kai.mixed": board.Ours(9.0, "s", "made up"),
        "gavel.las.light": board.Ours(15.0, "s", "made up"),
    }
    page = (tmp_path / "scoreboard.md").read_text()
    assert "| 9.00 s | `kai.mixed` |" in page
    assert "| not measured | `pollux.las` |" in page
    assert "not measured" in capsys.readouterr().out
    assert board.main(["pollux", "--pollux", "anywhere", "--write"], measure) == 0
    assert "| 10.00 s | `pollux.las` |" in (tmp_path / "scoreboard.md").read_text()


def test_a_name_that_no_row_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        board.main(["nobody"], lambda names, paths: iter(()))
    assert "no figure of published.tsv has such a name" in capsys.readouterr().err
