"""Whatever is done to a file of the state: the start is refused and names the file, or all that was
answered is served."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.apiserver import damage
from tests.apiserver.http import CONFIG_MAPS, Http, config_map
from tests.apiserver_process import ApiServerProcess


def held(seed: int, count: int) -> str:
    """Damages so often, holds what came of it to the rule, and gives a table."""
    with tempfile.TemporaryDirectory(dir=damage.memory()) as place:
        found = list(damage.cases(seed, count, Path(place)))
    wrong = [case for case in found if case.outcome == damage.WRONG]
    assert not wrong, f"{len(wrong)} of {count}, first of all {wrong[0]}"
    return damage.table(found, lambda case: case.kind)


def test_damaged_state_is_refused_or_served_whole() -> None:
    held(11, 150)


@pytest.mark.slow(seconds=100)
@pytest.mark.timeout(600)
def test_five_thousand_damages_lose_nothing() -> None:
    print(held(1, 5000))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 6 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "none", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"needs to mount a small disk: {mounted.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(place: Path, free: int) -> None:
    """Leaves so many bytes."""
    with (place / "fill").open("wb", 0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    os.truncate(place / "fill", (place / "fill").stat().st_size - free)


@pytest.mark.skipif(shutil.which("mount") is None, reason="needs mount")
def test_a_full_disk_is_called_full_and_nothing_is_to_be_moved(small: Path, tmp_path: Path) -> None:
    server = ApiServerProcess(small)
    server.log = tmp_path / "log"
    with closing(server.start()):
        http = Http(server)
        stored = []
        fill(small, 0)
        for number in range(100):
            answer = http.post(CONFIG_MAPS, config_map(f"c{number}", data={"x": "y" * 2000}))
            if answer.status != 201:
                break
            stored.append(f"c{number}")
        assert answer.message.endswith("the write could not be stored: the disk is full")
        server.kill()
        fill(small, 0)
        with pytest.raises(RuntimeError, match="the disk is full; free some space") as refused:
            server.start()
        assert not {"Traceback", "damaged", "move", "restore"} & set(
            str(refused.value).replace(":", " ").split()
        )
        (small / "fill").unlink()
        server.start()
        assert Http(server).get(CONFIG_MAPS).names == sorted(stored)
        server.stop()
        for free in (0, 120_000):
            fill(small, free)
            command = [
                sys.executable,
                "-m",
                "hekla",
                "apiserver",
                f"--data-dir={small / str(free)}",
                "--secure-port=0",
            ]
            new = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert "the disk is full; free some space" in new.stderr
            assert "Traceback" not in new.stderr
