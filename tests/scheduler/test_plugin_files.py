"""Plugins from files, a directory and a package: found, reloaded, and refused with file and line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hekla.engine.world import World
from hekla.scheduler.plugin_files import PluginFileError, find
from hekla.scheduler.policy_file import PolicyFile

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugins"
POLICY = """\
actions: "allocate"
{files}
tiers:
- plugins:
  - name: gang
  - name: predicates
  - name: mine
"""
MINE = """\
class Mine:
    name = "mine"

    def predicate(self, pod, node):
        return node.name == "n1"
"""


def written(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(1, path.stat().st_mtime_ns + len(text)))


def test_the_example_package_works_from_its_files():
    file = PolicyFile(str(EXAMPLE / "policy.yaml"), fall_back=False)
    world = World(file.policy)
    world.nodes("plain", cpu=64)
    world.nodes("licensed", cpu=4, labels={"example.com/licences": "solver.mesher"})
    world.job("solve", pods=2, cpu=1)

    assert world.run().nodes_of("solve") == {"plain"}


def test_the_example_licence_is_asked_for():
    file = PolicyFile(str(EXAMPLE / "policy.yaml"), fall_back=False)
    world = World(file.policy)
    world.nodes("plain", cpu=64)
    world.nodes("licensed", cpu=1, labels={"example.com/licences": "solver.mesher"})
    world.job("solve", pods=0, min_available=2)
    for number in range(2):
        world.pod(
            f"solve-{number}", job="solve", cpu=1, annotations={"example.com/licence": "solver"}
        )

    assert not world.run().binds
    assert "without the licence solver" in world.why("solve")
    world.nodes("licensed-2", cpu=1, labels={"example.com/licences": "solver"})
    assert world.run().nodes_of("solve") == {"licensed", "licensed-2"}


@pytest.mark.slow
def test_the_example_package_is_found_once_installed(tmp_path):
    """As a user would: a package with an entry point on the path of a fresh Python."""
    info = tmp_path / "hekla_licences-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hekla-licences\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(
        "[hekla.plugins]\nlicences = licences.licences:Licences\n"
    )
    code = "from hekla.scheduler.plugin_files import find; print(sorted(find([]).plugins))"
    path = os.pathsep.join([str(tmp_path), str(EXAMPLE)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "['licences']"


def test_a_change_in_a_plugin_takes_effect_and_a_bad_one_does_not(tmp_path, caplog):
    policy, plugin = tmp_path / "policy.yaml", tmp_path / "mine.py"
    policy.write_text(POLICY.format(files="pluginFiles: [mine.py]"))
    written(plugin, MINE)
    file = PolicyFile(str(policy), fall_back=False)
    world = World(file.policy)
    world.nodes("n1", "n2")
    world.job("one", pods=1, cpu=1)
    assert world.run().nodes_of("one") == {"n1"}
    assert not file.changed()

    written(plugin, MINE.replace("n1", "n2"))
    assert file.changed()
    world.policy = file.policy
    world.job("two", pods=1, cpu=1)
    assert world.run().nodes_of("two") == {"n2"}

    before = file.policy
    written(plugin, MINE + "\nraise RuntimeError('half written')\n")
    assert not file.changed()
    assert file.policy is before
    assert f"{plugin}:7: RuntimeError: half written" in caplog.text
    assert "policy in force is still the one of" in caplog.text


def test_a_directory_of_plugins(tmp_path):
    directory = tmp_path / "plugins"
    directory.mkdir()
    (directory / "mine.py").write_text(MINE)
    (directory / "_draft.py").write_text("this is no Python")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.format(files=""))

    assert (
        PolicyFile(str(policy), fall_back=False, plugins_dir=str(directory)).policy.tiers[0][2].name
        == "mine"
    )


@pytest.mark.parametrize(("text", "said"), [
    ("def broken(:\n", "mine.py:1: SyntaxError"),
    ("x = 1\n", "mine.py:1: no plugin in here"),
    ("import sys\n\nsys.exit(1)\n", "mine.py:3: SystemExit: 1"),
    (MINE.replace('"mine"', '"gang"'), 'the plugin name "gang" is taken'),
    (MINE.replace("predicate", "score").replace("Mine", "Mine(P)"), "mine.py:1: NameError"),
])  # fmt: skip
def test_what_cannot_be_loaded_says_why(tmp_path, text, said):
    path = tmp_path / "mine.py"
    path.write_text(text)

    with pytest.raises(PluginFileError) as caught:
        find([path])

    assert said in str(caught.value)
