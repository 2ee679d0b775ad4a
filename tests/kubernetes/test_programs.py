"""Kubernetes' programs are built where they are missing, and what is in the way is said in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import lane
from tests.kubernetes import programs


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEKLA_KUBERNETES", str(tmp_path / "built"))
    return tmp_path / "built"


def pretend_go(directory: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A `go` of our own, first on PATH."""
    directory.mkdir()
    go = directory / "go"
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


FOUND = '[ "$1" = list ] && exit 0'
MAKE = f'{FOUND}; while [ "$1" != -o ]; do shift; done; echo made > "$2"; echo "$2" >> "$(dirname "$2")/calls"'


def test_the_version_is_the_one_that_the_module_pins() -> None:
    assert programs.version().startswith("v1.36.")


def test_a_program_that_is_there_is_not_built_again(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_go(tmp_path / "bin", monkeypatch, MAKE)
    assert programs.need("etcd") == {"etcd": place / "etcd"}
    assert programs.need("etcd", "helm")["helm"].read_text() == "made\n"
    assert len((place / "calls").read_text().splitlines()) == 2


def test_another_pin_builds_it_again(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_go(tmp_path / "bin", monkeypatch, MAKE)
    programs.need("etcd")
    (place / ".etcd.from").write_text("what was pinned before")
    programs.need("etcd")
    assert len((place / "calls").read_text().splitlines()) == 2


@pytest.mark.usefixtures("place")
def test_a_machine_without_go_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        programs.CannotBuild, match="etcd: not built yet, and this machine has no Go"
    ):
        programs.need("etcd")


@pytest.mark.usefixtures("place")
def test_what_go_says_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_go(tmp_path / "bin", monkeypatch, f"{FOUND}; echo 'main: no space left' >&2; exit 1")
    with pytest.raises(programs.CannotBuild, match="etcd: Go cannot build it: main: no space left"):
        programs.need("etcd")


@pytest.mark.usefixtures("place")
def test_no_way_to_the_modules_is_found_out_before_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_go(tmp_path / "bin", monkeypatch, "echo 'dial tcp: no route to host' >&2; exit 1")
    with pytest.raises(
        programs.CannotBuild, match="Go cannot fetch modules: dial tcp: no route to host"
    ):
        programs.need("etcd")


@pytest.mark.usefixtures("place")
def test_a_proxy_that_is_silent_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "PROXY_PATIENCE", 0.2)
    pretend_go(tmp_path / "bin", monkeypatch, "exec sleep 60")
    with pytest.raises(programs.CannotBuild, match="no answer from its module proxy"):
        programs.need("etcd")


@pytest.mark.usefixtures("place")
def test_a_build_that_the_lane_has_no_time_for_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "left", lambda: 130.0)
    pretend_go(tmp_path / "bin", monkeypatch, MAKE)
    assert programs.need("etcd")
    with pytest.raises(
        programs.CannotBuild,
        match="kube-apiserver: not built yet, which takes some 4 minutes, and 2 of them are left",
    ):
        programs.need("etcd", "kube-apiserver")


@pytest.mark.usefixtures("place")
def test_a_test_says_why_it_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="this machine has no Go"):
        programs.wanted("etcd")


def test_a_build_that_takes_too_long_is_ended(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_go(tmp_path / "bin", monkeypatch, f"{FOUND}; exec sleep 60")
    with pytest.raises(
        programs.CannotBuild, match="etcd: not built in time; the next run goes on from here"
    ):
        programs.need("etcd", seconds=0)
    assert not (place / "etcd").exists()
