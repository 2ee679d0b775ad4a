"""The lock files name what pyproject.toml asks for, in versions that it takes, each file by its
hash."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD = (ROOT / "requirements-build.in").read_text().splitlines()
ASKED = {
    "requirements.lock": [*PROJECT["dependencies"], *BUILD],
    "requirements-dev.lock": [
        *PROJECT["dependencies"],
        *PROJECT["optional-dependencies"]["dev"],
        *BUILD,
    ],
}


def pins(file: str) -> list[tuple[Requirement, int]]:
    """Each pinned requirement and how many hashes it has."""
    joined = (ROOT / file).read_text().replace("\\\n", " ")
    lines = [
        line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    return [
        (
            Requirement(line.partition(" --hash")[0]),
            len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line)),
        )
        for line in lines
    ]


@pytest.mark.parametrize("file", ASKED)
def test_the_lock_answers_what_is_asked(file: str) -> None:
    locked: dict[str, list[Requirement]] = {}
    for pin, hashes in pins(file):
        assert hashes and [one.operator for one in pin.specifier] == ["=="], (
            f"{file}: {pin.name} is not pinned by hash"
        )
        locked.setdefault(canonicalize_name(pin.name), []).append(pin)
    for text in ASKED[file]:
        asked = Requirement(text)
        found = locked.get(canonicalize_name(asked.name))
        assert found, f"{file}: {asked.name} is missing; make lock"
        for pin in found:
            version = next(iter(pin.specifier)).version
            assert asked.specifier.contains(version, prereleases=True), (
                f"{file}: {pin.name} {version} is not {asked.specifier}; make lock"
            )


def test_tests_run_with_what_the_image_has() -> None:
    image, tests = ({str(pin) for pin, _ in pins(file)} for file in ASKED)
    assert image <= tests


def test_the_image_and_the_tests_install_what_is_locked() -> None:
    assert (
        "--require-hashes -r /source/requirements.lock"
        in (ROOT / "deploy" / "image" / "Containerfile").read_text()
    )
    assert "--require-hashes -r requirements-dev.lock" in (ROOT / "Makefile").read_text()
