"""The page about network QoS: its commands print what it shows, its configuration is valid, and its
metrics are those that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hekla.agent.configuration import merge, read, validate
from hekla.agent.metrics import Metrics
from hekla.agent.network.command import main
from hekla.kube.metrics import shown

PAGE = (Path(__file__).parents[2] / "docs/network-qos.md").read_text()


def test_the_commands_print_what_the_page_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NETWORK_QOS_STATE", str(tmp_path))
    (block,) = re.findall(r"```\n(\$ hekla network-qos .*?)```", PAGE, re.DOTALL)
    steps = re.findall(r"\$ hekla network-qos (.*)\n(.*\n)", block)
    assert len(steps) == 4
    for words, expected in steps:
        assert main(shlex.split(words)) == 0
        assert capsys.readouterr().out == expected


def test_the_configuration_is_valid() -> None:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    document, unknown = read(text)
    assert not unknown
    config = merge(document, {"volcano.sh/colocation": "true"})
    validate(config)
    assert config.network_qos_config is not None and config.network_qos_config.enable


def test_the_metrics_are_those_that_there_are() -> None:
    text = shown(Metrics().registry).decode()
    kinds = dict(re.findall(r"^# TYPE hekla_agent_network_(\S+) (\S+)$", text, re.MULTILINE))
    told = {
        name: kind
        for names, kind in re.findall(
            r"^\| (`hekla_agent_network_.*?) \| (\w+) \|", PAGE, re.MULTILINE
        )
        for name in re.findall(r"`(?:hekla_agent_network_|\.\.\._)(\w+)`", names)
    }
    assert told == kinds
