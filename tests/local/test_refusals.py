"""What can go wrong with `hekla up`: each has a clear message, and nothing is left half done."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hekla.api.kubernetes import core
from hekla.cli import up
from hekla.cli.readiness import Readiness
from hekla.kube.errors import ApiError
from hekla.local.cluster.cluster import Cluster, Settings
from hekla.local.machine.files import ClusterError
from tests.local.home import LIMIT, Home, ask, home, until
from tests.local.ordinary_user import BECOME, OrdinaryUser

CONFIG_MAP = core.CONFIG_MAP.untyped


@pytest.fixture
def own() -> Iterator[Home]:
    with home() as made:
        yield made


def untouched(own: Home) -> None:
    assert own.left() == []
    assert not own.directory().exists()


def test_a_port_in_use(own: Home) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        said = own.bad("up", "--port", str(port))
    assert (
        said
        == f"hekla up: --port, {port}, is in use by another program; stop it, or choose another with --port\n"
    )
    untouched(own)


def test_a_port_that_was_taken_between_the_look_and_the_start(
    own: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server itself finds it out: its words are in the message, and nothing is left."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        monkeypatch.setattr(up, "is_free", lambda port: True)
        with pytest.raises(
            ClusterError, match=rf"API server does not start(?s:.*){port}(?s:.*)in use"
        ):
            up.bring_up(Cluster(own.directory()), {"port": port}, 60, lambda *_: None)
    untouched(own)


async def test_a_supervisor_is_waited_for_as_long_as_it_lives(tmp_path: Path) -> None:
    """On a busy machine it needs its time before one sees anything of it; of one that has ended
    nothing will come."""

    async def wait(program: str, seconds: float) -> None:
        with subprocess.Popen([program, "60"], stderr=subprocess.DEVNULL) as supervisor:
            try:
                if program != "sleep":
                    supervisor.wait(LIMIT)
                await Readiness(
                    cluster, Settings(), lambda: supervisor.poll() is None, seconds, lambda *_: None
                ).wait()
            finally:
                supervisor.kill()

    cluster = Cluster(tmp_path / "slow")
    cluster.make_directories()
    with pytest.raises(ClusterError, match=r"not ready in time: API server.* try --timeout 60"):
        await wait("sleep", 0)
    with pytest.raises(ClusterError, match="the supervisor does not start"):
        await wait("false", LIMIT)


def test_a_policy_that_the_scheduler_cannot_use(own: Home) -> None:
    policy = own.state / "policy.yaml"
    policy.write_text('actions: "enqueue, allocat"\n')
    assert own.bad("up", "--scheduler-conf", str(policy)) == (
        f'hekla up: {policy}:1: action "allocat" does not exist; did you mean "allocate"?\n'
    )
    untouched(own)


def test_no_permission(own: Home) -> None:
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        user = OrdinaryUser(Path(place))
        refuse(own, Home(own.state, user.environment, (*BECOME, user.python)))


def refuse(own: Home, ordinary: Home) -> None:
    os.chmod(own.state, 0o755)
    directory = own.state / "hekla"
    said = ordinary.bad("up")
    assert (
        said
        == f"hekla up: {directory}: Permission denied: choose another place with XDG_STATE_HOME\n"
    )
    directory.mkdir(mode=0o700)
    for command in ("up", "status", "down"):
        said = ordinary.bad(command)
        assert "Permission denied: choose another place with XDG_STATE_HOME" in said
    untouched(own)


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="sets the limit with prlimit")
def test_too_few_open_files(own: Home) -> None:
    few = Home(own.state, python=("prlimit", "--nofile=64:64", sys.executable))
    words = "only 64 files may be open at a time, at least 256 are needed: raise the limit (ulimit -n 1024) and try again\n"
    assert few.bad("up") == f"hekla up: {words}"
    assert few.bad("apiserver", "--data-dir", str(own.state)) == f"hekla apiserver: {words}"
    untouched(own)


def test_a_place_that_is_a_file(own: Home) -> None:
    (own.state / "hekla").write_text("")
    assert own.bad("up") == f"hekla up: {own.state / 'hekla'}: File exists\n"
    (own.state / "hekla").unlink()


@pytest.fixture
def small_disk(own: Home) -> Iterator[Path]:
    """A file system of 64 MiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64m", "hekla-test", str(own.state)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr}")
    try:
        yield own.state
    finally:
        for directory in (own.state / "hekla").glob("[!.]*"):
            own.hekla("down", "--delete", "--name", directory.name)
        subprocess.run(["umount", "--lazy", str(own.state)], check=True)


def fill(disk: Path, room: int = 0) -> None:
    """Leaves so many bytes free."""
    with open(disk / "ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError:
            file.truncate(max(0, file.tell() - room))


@pytest.mark.parametrize("room", [0, 4096, 2**20])
def test_a_full_disk(own: Home, small_disk: Path, room: int) -> None:
    fill(small_disk, room)
    assert "the disk is full; free some space and try again" in own.bad("up")
    untouched(own)


def test_a_disk_that_becomes_full_while_the_cluster_starts(own: Home, small_disk: Path) -> None:
    process = subprocess.Popen(
        own.command("up"),
        env=own.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    fill(small_disk)
    _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert "the disk is full; free some space and try again" in said
    untouched(own)


def test_a_disk_that_becomes_full_under_a_cluster(own: Home, small_disk: Path) -> None:
    """What is asked then is refused with the reason; what was stored is there, and with room again
    everything goes on."""
    own.good("up")
    before = own.pids()
    assert create(own, "before", 10)[0] == 201
    fill(small_disk)
    answers = [create(own, f"full-{number}", 200_000) for number in range(4)]
    refused = [text for code, text in answers if code != 201]
    assert refused, "nothing was refused although nothing could be written"
    assert all("full" in text for text in refused), refused
    os.kill(before["scheduler"], signal.SIGKILL)
    (small_disk / "ballast").unlink()
    until("the cluster is well again", lambda: own.hekla("status").returncode == 0)
    assert create(own, "after", 10)[0] == 201
    own.good("down")
    own.good("up")
    kept = {
        "before",
        "after",
        *(f"full-{number}" for number, (code, _) in enumerate(answers) if code == 201),
    }
    found = ask(own, lambda client: client.list(CONFIG_MAP, "default")).items
    assert kept <= {one["metadata"]["name"] for one in found}


def create(own: Home, name: str, size: int) -> tuple[int, str]:
    """Creates an object of so many bytes; gives the status and the message of the answer."""
    tree = {"metadata": {"name": name}, "data": {"a": "x" * size}}
    try:
        ask(own, lambda client: client.create(CONFIG_MAP, tree, "default"))
    except ApiError as error:
        return error.status, error.message
    return 201, ""


@pytest.mark.parametrize("after", ["at once", "certificates", "API server"])
def test_ctrl_c_leaves_nothing(own: Home, after: str) -> None:
    """Interrupted at the start, before the supervisor has its lock, and in the middle; a second
    Ctrl-C changes nothing."""
    process = subprocess.Popen(
        own.command("up"),
        env=own.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    if after == "at once":
        until("it has begun", lambda: own.directory().exists() or process.poll() is not None)
    else:
        for line in process.stdout:
            if after in line:
                break
    os.killpg(process.pid, signal.SIGINT)
    time.sleep(0.1)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "Interrupted; nothing is left running." in said
    untouched(own)


def test_told_to_end_leaves_nothing(own: Home) -> None:
    process = subprocess.Popen(
        own.command("up"),
        env=own.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    process.communicate(timeout=LIMIT)
    assert process.returncode == 143
    untouched(own)


def test_a_cluster_that_does_not_come_back_keeps_its_settings(own: Home) -> None:
    """A table of images that the kubelet refuses: its words are shown, and the next `up` is the old
    cluster."""
    own.good("up", "--nodes", "2")
    own.good("down")
    before = (own.directory() / "cluster.json").read_text()
    images = own.state / "images.yaml"
    images.write_text("images: 7\n")
    said = own.bad("up", "--images", str(images))
    assert "kubelet does not start" in said
    assert str(images) in said
    assert own.left() == []
    assert (own.directory() / "cluster.json").read_text() == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("upp",),
            'hekla: unknown command "upp"; did you mean "up"?\n"hekla --help" lists the commands.\n',
        ),
        (
            ("up", "--node", "3"),
            'hekla up: unknown flag --node; did you mean --nodes?\n"hekla up --help" lists the flags.\n',
        ),
        (
            ("status", "--jsn"),
            'hekla status: unknown flag --jsn; did you mean --json?\n"hekla status --help" lists the flags.\n',
        ),
        (
            ("down", "all"),
            'hekla down: "all" is not expected here; this command takes flags only\n"hekla down --help" lists the flags.\n',
        ),
        (
            ("doctor", "--json"),
            'hekla doctor: unknown flag --json\n"hekla doctor --help" lists the flags.\n',
        ),
        (
            ("crds", "--yaml"),
            'hekla crds: unknown flag --yaml\n"hekla crds --help" lists the flags.\n',
        ),
        (
            ("demo", "--kepe"),
            'hekla demo: unknown flag --kepe; did you mean --keep?\n"hekla demo --help" lists the flags.\n',
        ),
    ],
)
def test_a_misspelt_word_names_the_nearest(own: Home, words: tuple[str, ...], said: str) -> None:
    assert own.bad(*words, code=2) == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--nodes", "-1"), "--nodes -1: a whole number from 0 to 250 is expected"),
        (("--node-cpu", "1.5.5"), "--node-cpu 1.5.5: "),
        (
            ("--node-memory", "0"),
            '--node-memory 0: a size above zero is expected, for example "4" or "8Gi"',
        ),
        (("--port", "70000"), "--port 70000: a whole number from 0 to 65535 is expected"),
        (("--name", "Big_One"), '--name: "Big_One" is not a name for a cluster'),
        (("--node-grace", "5s"), "--node-grace 5s: a duration of at least 30 s is expected"),
        (("--images", "nowhere.yaml"), "--images nowhere.yaml: there is no such file"),
    ],
)
def test_a_wrong_value_is_quoted(own: Home, words: tuple[str, ...], said: str) -> None:
    assert own.bad("up", *words).startswith(f"hekla up: {said}")
    untouched(own)


def test_the_doctor_says_what_this_machine_allows(own: Home) -> None:
    printed = own.good("doctor")
    assert "Python" in printed and "private view of the files" in printed
    assert printed.endswith("A cluster can run here.\n")
