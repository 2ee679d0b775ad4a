"""A recording runs again in another process, to the byte; what differs is shown."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hekla.api import crds
from hekla.engine.cycle import cycle
from hekla.engine.tape import FORMAT
from hekla.scheduler.policy_file import PolicyFile
from hekla.scheduler.recording import RecordedExtender, RecordedState, Recording, read
from hekla.scheduler.replay import effects, main, replay
from tests.apiserver_process import ApiServerProcess, apiserver
from tests.ports import free_port

__all__ = ["apiserver"]

POLICY = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: gang
  - name: priority
  - name: predicates
  - name: {score}
"""


def node(name: str, cpu: str = "4") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
            "capacity": {"cpu": cpu, "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def group(name: str, minimum: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": minimum, "queue": "default", "minResources": {"cpu": str(minimum)}},
    }


def pod(name: str, job: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"scheduling.k8s.io/group-name": job},
        },
        "spec": {
            "schedulerName": "volcano",
            "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}],
        },
    }


def recorded(directory: Path, policy: PolicyFile) -> None:
    """Two cycles with a bind that failed between them, and a plugin's worth of other things."""
    recording = Recording(directory)
    state = RecordedState(
        recording, scheduler_names=["volcano"], bare_pod_schedulers=[], default_queue="default"
    )
    state.upsert_namespace({"metadata": {"name": "default"}})
    state.upsert_queue(
        {"metadata": {"name": "default"}, "spec": {"weight": 1}, "status": {"state": "Open"}}
    )
    for number in range(3):
        state.upsert_node(node(f"n{number}"))
    state.upsert_other("StorageClass", {"metadata": {"name": "fast"}})
    state.upsert_pod_group(group("job", 2))
    for number in range(4):
        tree = pod(f"job-task-{number}", "job")
        state.upsert_pod(tree)
        tree.clear()  # as the feed does
    now = 1_000_000.0
    for step in range(4):
        recording.take_policy(policy)
        decisions = cycle(state, policy.policy, now)
        recording.cycle(now, decisions)
        for bind in decisions.binds[:1]:
            state.bind_failed(bind.pod, now)
        now += 1.5 + step
    state.remove_node(node("n0"))
    recording.close()
    state.upsert_node(node("too-late"))


def policy_file(path: Path, score: str = "binpack") -> PolicyFile:
    path.write_text(POLICY.format(score=score))
    return PolicyFile(str(path), fall_back=False)


@pytest.mark.parametrize("name", ["live", "scripted", "extender"])
def test_recordings_of_earlier_programs_replay_to_the_byte(name: str) -> None:
    """Written by the program as it was on 2026-11-22: by a scheduler daemon, by hand, and with
    an extender's answers."""
    outcome = replay(Path(__file__).with_name("recordings") / name)
    assert outcome.cycles > 0
    assert outcome.difference is None


def test_it_replays_to_the_byte_in_another_process(tmp_path):
    recorded(tmp_path / "tape", policy_file(tmp_path / "policy.yaml"))

    done = subprocess.run(
        [sys.executable, "-m", "hekla", "replay", str(tmp_path / "tape")],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "every decision is the recorded one" in done.stdout


def test_another_policy_shows_the_first_difference(tmp_path, capsys):
    recorded(tmp_path / "tape", policy_file(tmp_path / "policy.yaml"))
    policy_file(tmp_path / "other.yaml", "nodeorder")

    assert main([str(tmp_path / "tape"), "--policy", str(tmp_path / "other.yaml")]) == 1

    told = capsys.readouterr().out
    assert told.startswith("cycle 1 (1970-01-12 13:46:40 UTC) decided otherwise in binds[")
    assert '  recorded: "n0"\n  replayed: "n1"' in told


def test_a_recording_that_was_cut_off_replays_to_its_last_whole_cycle(tmp_path):
    recorded(tmp_path / "tape", policy_file(tmp_path / "policy.yaml"))
    (path,) = (tmp_path / "tape").glob("*.tape")
    path.write_bytes(path.read_bytes()[:-40])

    outcome = replay(tmp_path / "tape")

    assert outcome.difference is None
    assert outcome.cycles >= 2


def test_a_second_process_continues_in_a_new_file(tmp_path):
    policy = policy_file(tmp_path / "policy.yaml")
    recorded(tmp_path / "tape", policy)
    recorded(tmp_path / "tape", policy)

    assert [frame[0] for frame in read(tmp_path / "tape")].count("header") == 2
    assert replay(tmp_path / "tape").difference is None


def test_it_stops_at_its_limit(tmp_path, caplog):
    recording = Recording(tmp_path / "tape", limit=10)
    for _ in range(3):
        recording.frame("upsert_node", {str(number): number * 7 for number in range(100_000)})
    assert not recording.running
    assert "ends here" in caplog.text


@pytest.mark.parametrize(
    "answer", [{"code": 0}, OSError("no route"), ValueError("answered 500"), None]
)
def test_what_an_extender_answered_is_part_of_a_recording(tmp_path, answer):
    """Asked again it would say something else; the replay asks nobody."""

    def ask(address: str, body: Any, timeout: float) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    path = tmp_path / "policy.yaml"
    arguments = "{extender.urlPrefix: 'http://nowhere', extender.predicateVerb: predicate, extender.onSessionOpenVerb: open}"
    path.write_text(
        f"actions: allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: extender\n    arguments: {arguments}\n"
    )
    recording = Recording(tmp_path / "tape")
    state = RecordedState(
        recording, scheduler_names=["volcano"], shard_mode="none", lifts_gates=False
    )
    state.ask_extender = RecordedExtender(recording, ask)
    policy = PolicyFile(str(path), fall_back=False)
    state.upsert_queue(
        {"metadata": {"name": "default"}, "spec": {"weight": 1}, "status": {"state": "Open"}}
    )
    state.upsert_node(node("n0"))
    state.upsert_pod_group({**group("job", 1), "status": {"phase": "Inqueue"}})
    state.upsert_pod(pod("job-task-0", "job"))
    recording.take_policy(policy)
    recording.cycle(1e6, cycle(state, policy.policy, 1e6))
    recording.close()
    assert "extender" in [frame[0] for frame in read(tmp_path / "tape")]
    assert replay(tmp_path / "tape").difference is None


def test_shards_and_device_objects_are_part_of_a_recording(tmp_path):
    recording = Recording(tmp_path / "tape")
    state = RecordedState(
        recording, scheduler_names=["volcano"], shard_mode="hard", shard_name="mine"
    )
    policy = policy_file(tmp_path / "policy.yaml")
    state.upsert_queue(
        {"metadata": {"name": "default"}, "spec": {"weight": 1}, "status": {"state": "Open"}}
    )
    for name in ("n0", "n1"):
        state.upsert_node(node(name))
    state.upsert_other(
        "NodeShard", {"metadata": {"name": "mine", "uid": "u"}, "spec": {"nodesDesired": ["n1"]}}
    )
    state.upsert_other("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {}})
    devices = {
        "driver": "gpu",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
    }
    state.upsert_other(
        "ResourceSlice",
        {"metadata": {"name": "s"}, "spec": {**devices, "devices": [{"name": "d"}]}},
    )
    claim = {
        "requests": [
            {
                "name": "r",
                "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
            }
        ]
    }
    state.upsert_other(
        "ResourceClaim",
        {"metadata": {"name": "c", "namespace": "default", "uid": "c"}, "spec": {"devices": claim}},
    )
    state.upsert_pod_group({**group("job", 1), "status": {"phase": "Inqueue"}})
    tree = pod("job-task-0", "job")
    tree["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "c"}]
    state.upsert_pod(tree)
    recording.take_policy(policy)
    decisions = cycle(state, policy.policy, 1e6)
    recording.cycle(1e6, decisions)
    recording.close()
    assert decisions.bound() == {"default/job-task-0": "n1"}
    assert [one.in_use for one in decisions.shards] == [["n1"]]
    assert replay(tmp_path / "tape").difference is None


def test_what_is_no_recording_is_said_to_be_none(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "no recording" in capsys.readouterr().err


def post(server: ApiServerProcess, path: str, body: dict[str, Any]) -> None:
    status, answer = server.request(
        "POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    assert status in (200, 201), answer


def wait_for(condition: Any, what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


class Daemon:
    """`hekla scheduler` beside an API server."""

    def __init__(self, server: ApiServerProcess, directory: Path, *flags: str) -> None:
        for definition in crds.all():
            self.post(server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
        groups = "/apis/scheduling.volcano.sh/v1beta1/podgroups"
        wait_for(lambda: server.request("GET", groups)[0] == 200, "the kinds are served")
        self.server = server
        self.recording = directory / "tape"
        self.log = directory / "scheduler.log"
        self.metrics = f"127.0.0.1:{free_port()}"
        command = [
            sys.executable,
            "-m",
            "hekla",
            "scheduler",
            f"--kubeconfig={server.internal_kubeconfig}",
            "--leader-elect=false",
            f"--record={self.recording}",
            "--enable-metrics",
            f"--listen-address={self.metrics}",
            "--schedule-period=200ms",
            *flags,
        ]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)

    def post(self, server: ApiServerProcess, path: str, body: dict[str, Any]) -> None:
        status, answer = server.request(
            "POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        assert status in (200, 201), answer

    def bound(self) -> dict[str, str]:
        _, answer = self.server.request("GET", "/api/v1/namespaces/default/pods")
        return {
            one["metadata"]["name"]: one["spec"]["nodeName"]
            for one in json.loads(answer)["items"]
            if "nodeName" in one["spec"]
        }

    def shown(self) -> str:
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return text

    def end(self, how: int) -> None:
        self.process.send_signal(how)
        self.process.wait(60)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_live_scheduler_is_recorded_and_replayed(apiserver, tmp_path, how):
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.format(score="binpack"))
    daemon = Daemon(apiserver, tmp_path, f"--scheduler-conf={policy}", "--node-selector=pool:batch")
    try:
        daemon.post(apiserver, "/api/v1/nodes", node("elsewhere", "64"))
        for number in range(3):
            made = node(f"n{number}")
            made["metadata"]["labels"] = {"pool": "batch"}
            daemon.post(apiserver, "/api/v1/nodes", made)
        for name in ("fits", "waits"):
            daemon.post(
                apiserver,
                "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups",
                group(name, 8),
            )
            for number in range(8):
                daemon.post(
                    apiserver, "/api/v1/namespaces/default/pods", pod(f"{name}-{number}", name)
                )
        wait_for(
            lambda: len(daemon.bound()) == 8,
            f"eight pods are bound; {daemon.log.read_text()[-3000:]}",
        )
        policy.write_text(POLICY.format(score="nodeorder"))
        daemon.post(
            apiserver,
            "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups",
            group("last", 2),
        )
        for number in range(2):
            daemon.post(apiserver, "/api/v1/namespaces/default/pods", pod(f"last-{number}", "last"))
        wait_for(
            lambda: len(daemon.bound()) == 10,
            f"ten pods are bound; {daemon.log.read_text()[-3000:]}",
        )
        shown = daemon.shown()
        assert set(daemon.bound().values()) <= {"n0", "n1", "n2"}
    finally:
        daemon.end(how)

    done = subprocess.run(
        [sys.executable, "-m", "hekla", "replay", str(daemon.recording)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 binds: every decision" in done.stdout or how == signal.SIGKILL

    for name in (
        "e2e_scheduling_latency_milliseconds",
        "open_session_duration_milliseconds",
        "action_scheduling_latency_milliseconds",
        "plugin_scheduling_latency_milliseconds",
        "scheduling_stage_duration_milliseconds",
        "task_scheduling_latency_milliseconds",
        "e2e_job_scheduling_latency_milliseconds",
        "total_preemption_attempts",
        "pod_preemption_victims",
        "unschedule_job_count",
        "unschedule_task_count",
        "job_retry_counts",
        "schedule_attempts",
        "e2e_job_scheduling_duration",
        "e2e_job_scheduling_start_time",
    ):
        assert f"volcano_{name}" in shown, name
    assert 'volcano_action_scheduling_latency_milliseconds_count{action="allocate"}' in shown
    assert (
        'volcano_plugin_scheduling_latency_milliseconds_count{OnSession="OnSessionOpen",plugin="gang"}'
        in shown
    )


def test_another_policy_is_compared_by_what_it_does_not_by_its_words(tmp_path, capsys):
    """A plugin more, of which the explanations speak, and nothing that goes elsewhere."""
    recorded(tmp_path / "tape", policy_file(tmp_path / "policy.yaml"))
    other = tmp_path / "other.yaml"
    other.write_text(POLICY.format(score="binpack").replace('actions: "', 'actions: "shuffle, '))
    (tmp_path / "policy.yaml").unlink()

    assert main([str(tmp_path / "tape"), "--policy", str(other)]) == 0

    assert "this policy would have done the same." in capsys.readouterr().out


def test_words_that_differ_are_no_deeds():
    words = {"binds": [], "pipelined": [], "gates": [], "freed": []}
    group = {"key": "default/a", "phase": "Pending", "conditions": [{"message": "priority spares"}]}
    other = {**group, "conditions": [{"message": "priority and drf spare"}]}
    evicted = {"pod": "p", "reason": "preempt", "purpose": "room for a"}

    here: dict[str, Any] = {**words, "evictions": [], "pod_groups": [group]}
    told = {**words, "evictions": [evicted], "pod_groups": [group]}
    otherwise = {
        **words,
        "evictions": [{**evicted, "purpose": "room for b"}],
        "pod_groups": [other],
    }
    let_in = {**here, "pod_groups": [{**group, "phase": "Inqueue"}]}

    assert effects(told, {"default/a"}) == effects(otherwise, {"default/a"})
    assert effects(here, {"default/a"}) != effects(let_in, {"default/a"})
    assert effects(here, set()) == effects(let_in, set()), "it was in already: only words are new"


def test_a_recording_without_a_whole_cycle_is_said_to_be_none(tmp_path, capsys):
    recorded(tmp_path / "tape", policy_file(tmp_path / "policy.yaml"))
    (path,) = (tmp_path / "tape").glob("*.tape")
    path.write_bytes(path.read_bytes()[:30])

    assert main([str(tmp_path / "tape")]) == 2
    assert "no whole cycle is recorded" in capsys.readouterr().err


@pytest.mark.parametrize("frame", [b"\xc1", b"\x07"])
def test_a_damaged_recording_says_how_far_it_could_be_read(tmp_path, capsys, frame):
    body = msgspec.msgpack.encode(("header", FORMAT, "1", {}))
    pieces = b"".join(len(one).to_bytes(4, "big") + one for one in (body, frame))
    (tmp_path / "000001.tape").write_bytes(zlib.compress(pieces))

    assert main([str(tmp_path)]) == 2
    assert "damaged after frame 1" in capsys.readouterr().err


def test_a_recording_of_a_version_that_knew_more_is_refused_in_words(tmp_path, capsys):
    body = msgspec.msgpack.encode(("header", FORMAT, "9.9", {"unheard_of": 1}))
    (tmp_path / "000001.tape").write_bytes(zlib.compress(len(body).to_bytes(4, "big") + body))

    assert main([str(tmp_path)]) == 2
    assert "written by version 9.9" in capsys.readouterr().err
