"""The page about frameworks says what the tests run."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from hekla.local.kubelet.pods.images import Images
from tests.frameworks.environments import FRAMEWORKS
from tests.frameworks.runs import MANIFESTS

PAGE = (Path(__file__).parents[2] / "docs" / "frameworks.md").read_text()


def test_every_example_is_on_the_page_and_run() -> None:
    here = {path.name for path in MANIFESTS.glob("*.yaml")}
    assert set(re.findall(r"\(\.\./examples/frameworks/([\w-]+\.yaml)\)", PAGE)) == here
    tests = "".join(
        path.read_text()
        for path in Path(__file__).parent.glob("*.py")
        if path.name != Path(__file__).name
    )
    assert {name for name in here if f'"{name}"' not in tests} == set()


def test_what_is_to_be_installed_is_what_the_tests_install() -> None:
    for framework in FRAMEWORKS:
        for requirement in framework.requirements:
            assert requirement in PAGE, f"{framework.name} needs {requirement}"


def test_its_table_of_images_covers_the_examples(tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    block = re.search(r"```yaml\n(# images.yaml.*?)```", PAGE, re.S)
    assert block is not None
    file.write_text(block[1])
    images = Images.load(str(file))
    assert {row["image"] for row in yaml.safe_load(block[1])} == {
        framework.image for framework in FRAMEWORKS
    }
    for path in MANIFESTS.glob("*.yaml"):
        for image in set(re.findall(r"image: (\S+)", path.read_text())) - {"python:3"}:
            assert images.path(image), f"{path.name}: {image}"
