"""`hekla network-qos` as it is typed, and as a CNI plugin."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hekla.agent.network import cni
from hekla.agent.network.command import main
from hekla.agent.network.state import StateFiles, Status

ALL = (
    "--online-bandwidth-watermark=800Mbps",
    "--offline-low-bandwidth=100Mbps",
    "--offline-high-bandwidth=400Mbps",
)
SET = '{"online_bandwidth_watermark":100000000,"interval":10000000,"offline_low_bandwidth":12500000,"offline_high_bandwidth":50000000}'
NOT_INITIALIZED = "network qos has not been initialized, please enable network qos first"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Words -> (exit code, stdout, stderr), on a node of its own."""
    monkeypatch.setenv("NETWORK_QOS_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("CNI_CONF_FILE_PATH", str(tmp_path / "cni.conflist"))
    monkeypatch.delenv("CNI_COMMAND", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        return code, *capsys.readouterr()

    return run


def test_limits_are_set_shown_and_reset(run: Run) -> None:
    assert run("set", "--check-interval=10000000", *ALL) == (
        0,
        f"throttling config set: {SET}\n",
        "",
    )
    assert run("show")[1] == (
        'network-qos config: {"online_bandwidth_watermark":"800000000bps","interval":10000000,'
        '"offline_low_bandwidth":"100000000bps","offline_high_bandwidth":"400000000bps"}\n'
    )
    _, told, _ = run("set", "--offline-low-bandwidth", "200Mbps")
    assert json.loads(told.partition(": ")[2])["offline_low_bandwidth"] == 25_000_000
    assert run("reset")[1] == (
        'throttling config reset: {"online_bandwidth_watermark":100000000,"interval":10000000,'
        '"offline_low_bandwidth":140737488355328,"offline_high_bandwidth":140737488355328}\n'
    )


def test_nothing_is_set_yet(run: Run) -> None:
    assert run("reset") == (0, "throttling config does not exist, reset successfully", "")
    for name in ("show", "status"):
        code, out, told = run(name)
        assert (code, out) == (1, "")
        assert told.startswith(f"execute command[{name}] failed, error:") and told.endswith(
            f", {NOT_INITIALIZED}\n"
        )
    code, _, told = run("set", "--check-interval=10000000", ALL[0], ALL[1])
    assert code == 1 and told == (
        "execute command[set] failed, error:size string  is illegal, only support positive integer "
        'with unit like Kbps, Mbps, Gbps, Tbps: strconv.ParseUint: parsing "": invalid syntax\n'
    )


def test_the_status_has_the_fields_of_the_map_in_their_order(run: Run, tmp_path: Path) -> None:
    StateFiles().set_status(Status(check_times=3, latest_online_bandwidth=7))
    told = run("status")[1]
    assert told.startswith('throttling status: {"latest_offline_packet_send_time":0,')
    assert list(json.loads(told.partition(": ")[2]).items()) == [
        ("latest_offline_packet_send_time", 0),
        ("offline_bandwidth_limit", 0),
        ("offline_tx_bytes", 0),
        ("online_tx_bytes", 0),
        ("latest_check_time", 0),
        ("check_times", 3),
        ("high_times", 0),
        ("low_times", 0),
        ("online_tx_packages", 0),
        ("offline_tx_packages", 0),
        ("offline_prio", 0),
        ("latest_online_bandwidth", 7),
        ("latest_offline_bandwidth", 0),
    ]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("sett",), 'unknown command "sett"'),
        (("set", "--watermark=1"), "unknown flag: --watermark"),
        (("--check-interval=1",), "flags come after a command"),
    ],
)
def test_words_that_mean_nothing(run: Run, words: tuple[str, ...], why: str) -> None:
    code, out, told = run(*words)
    assert (code, out) == (1, "") and told.startswith(f"execute command failed, error:{why}")


def test_a_file_that_holds_something_else(run: Run, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "throttle_cfg").write_text("{}")
    code, _, told = run("show")
    assert code == 1 and "throttle_cfg: Object missing required field" in told


CHAIN = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [{"type": "bridge"}, {"type": "portmap"}],
}


def written(path: Path) -> Any:
    return json.loads(path.read_text())


def test_preparing_adds_the_entry_where_the_plugin_is_there(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = tmp_path / "cni.conflist"
    chain.write_text(json.dumps(CHAIN))
    enable = ("prepare", "--enable-network-qos=true", *ALL)
    assert run(*enable) == (0, "", "")
    assert StateFiles().limits() is not None and written(chain) == CHAIN, (
        "an entry whose program is missing would keep every pod of the node from starting"
    )
    (tmp_path / "network-qos").touch()
    monkeypatch.setattr(cni, "PROGRAM", tmp_path / "network-qos")
    assert run(*enable) == (0, "", "")
    arguments = {
        "colocation": "true",
        "check-interval": "10000000",
        "online-bandwidth-watermark": "800Mbps",
        "offline-low-bandwidth": "100Mbps",
        "offline-high-bandwidth": "400Mbps",
    }
    entry = {"name": "network-qos", "type": "network-qos", "args": arguments}
    assert written(chain) == {**CHAIN, "plugins": [*CHAIN["plugins"], entry]}
    assert '\n    "plugins": [\n' in chain.read_text()
    run(*enable, "--check-interval=20000000")
    assert [one["args"]["check-interval"] for one in written(chain)["plugins"][2:]] == ["20000000"]
    assert run("prepare", "--enable-network-qos=false") == (0, "", "")
    assert written(chain) == CHAIN
    limits = StateFiles().limits()
    assert limits is not None and limits.offline_low_bandwidth == 1024**5 // 8


def test_a_chain_that_is_none_is_said(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cni.conflist").write_text("{")
    code, _, told = run("prepare", "--enable-network-qos=false")
    assert (
        code == 1
        and told.startswith("execute command[prepare] failed, error:")
        and "cni.conflist" in told
    )


@pytest.fixture
def plugin(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Any]]:
    """(command, configuration) -> (exit code, what is printed)."""

    def plugin(command: str, given: Any = None) -> tuple[int, Any]:
        monkeypatch.setenv("CNI_COMMAND", command)
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(given)))
        code, out, _ = run()
        return code, json.loads(out) if out.strip() else None

    return plugin


def test_the_plugin_hands_on_and_restores(plugin: Callable[..., tuple[int, Any]]) -> None:
    texts = {"online_bandwidth_watermark": "800Mbps", "interval": "10000000",
             "offline_low_bandwidth": "100Mbps", "offline_high_bandwidth": "400Mbps"}  # fmt: skip
    configuration = {"cniVersion": "1.0.0", **cni.entry(texts)}
    code, told = plugin("ADD", configuration)
    assert code == 1 and (told["code"], told["msg"]) == (7, "must be called as chained plugin")
    assert StateFiles().limits() is None
    previous = {"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24"}]}
    assert plugin("ADD", {**configuration, "prevResult": previous}) == (0, previous)
    limits = StateFiles().limits()
    assert limits is not None and limits.offline_high_bandwidth == 50_000_000
    assert plugin("DEL", configuration) == plugin("CHECK", configuration) == (0, None)
    assert plugin("VERSION")[1]["supportedVersions"][-1] == "1.1.0"
    code, told = plugin("GC", configuration)
    assert code == 1 and told["msg"] == "unknown CNI_COMMAND: GC"
