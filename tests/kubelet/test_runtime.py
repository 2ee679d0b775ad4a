"""Real processes, started and killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hekla.local.kubelet.records import Launch, PodDirectory, PodRecord, Slot
from hekla.local.kubelet.runtime.isolation import Isolation
from hekla.local.kubelet.runtime.runtime import (
    CannotStart,
    Instance,
    Runtime,
    children_of,
    stop_all,
)
from hekla.local.machine.processes import start_of

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/"}


@pytest.fixture(params=["plain", "isolated"])
def namespaces(request: pytest.FixtureRequest, isolation: Isolation) -> list[str]:
    """Every story is told twice: with the namespaces that this machine allows, and without any."""
    if request.param == "isolated" and not isolation.namespaces:
        pytest.skip("this machine allows no namespaces")
    return list(isolation.namespaces) if request.param == "isolated" else []


@pytest.fixture
async def runtime() -> AsyncIterator[Runtime]:
    made = Runtime()
    yield made
    made.close()


def slot_of(root: Path, name: str = "main", attempt: int = 0, uid: str = "u1") -> Slot:
    directory = PodDirectory(root, uid)
    directory.make(PodRecord("ns", "pod", uid, "node", "127.0.0.1"))
    return directory.slot(name, attempt)


def launch_of(namespaces: list[str], *argv: str, **more: object) -> Launch:
    return Launch(argv=list(argv), env=dict(ENVIRONMENT), namespaces=namespaces, **more)  # type: ignore[arg-type]


class Ends:
    """Waits for ends that a Runtime tells of."""

    def __init__(self) -> None:
        self.told = asyncio.Event()

    def __call__(self, instance: Instance) -> None:
        self.told.set()

    async def of(self, instance: Instance) -> int:
        if instance.exit is None:
            await asyncio.wait_for(self.told.wait(), 60)
        assert instance.exit is not None
        return instance.exit.code


async def run(runtime: Runtime, slot: Slot, launch: Launch) -> int:
    ends = Ends()
    return await ends.of(await runtime.start(slot, launch, ends))


async def eventually(condition: object, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it never happened"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("nosuchcmd", 127), ("kill -9 $$", 137), ("kill -TERM $$", 143)],
)
@pytest.mark.scenario("local-cluster", 127)
async def test_exit_codes_are_those_of_a_container(
    runtime: Runtime, root: Path, namespaces: list[str], script: str, code: int
) -> None:
    assert await run(runtime, slot_of(root), launch_of(namespaces, "sh", "-c", script)) == code


async def test_output_of_both_streams_is_whole_and_in_order(
    runtime: Runtime, root: Path, namespaces: list[str]
) -> None:
    slot = slot_of(root)
    await run(
        runtime,
        slot,
        launch_of(namespaces, "sh", "-c", "echo one; echo two >&2; echo three; kill -TERM $$"),
    )
    assert slot.log.read_text() == "one\ntwo\nthree\n"


async def test_a_missing_program_is_an_end_of_its_own(
    runtime: Runtime, root: Path, namespaces: list[str]
) -> None:
    slot = slot_of(root)
    assert await run(runtime, slot, launch_of(namespaces, "no-such-program")) == 128
    end = slot.exit()
    assert end is not None and end.reason == "StartError"
    assert 'exec: "no-such-program": executable file not found in $PATH' in end.message


async def test_the_environment_is_exactly_the_pods(
    runtime: Runtime, root: Path, namespaces: list[str]
) -> None:
    slot = slot_of(root)
    launch = launch_of(namespaces, "env")
    launch.env["GREETING"] = "hello"
    await run(runtime, slot, launch)
    seen = {line.partition("=")[0] for line in slot.log.read_text().splitlines()}
    of_the_shell = {"PWD", "SHLVL", "_", "OLDPWD"}
    assert seen - of_the_shell == {"GREETING", "HOME", "PATH"}


async def test_a_slot_starts_once_however_often_it_is_requested(
    runtime: Runtime, root: Path, namespaces: list[str]
) -> None:
    slot = slot_of(root)
    counter = root / "count"
    launch = launch_of(namespaces, "sh", "-c", f"echo x >> {counter}")
    ends = Ends()
    started = await asyncio.gather(*(runtime.start(slot, launch, ends) for _ in range(8)))
    for instance in started:
        await eventually(lambda instance=instance: instance.exit is not None)
    assert counter.read_text() == "x\n"


async def test_sigterm_reaches_the_command_and_sigkill_everything(
    runtime: Runtime, root: Path, namespaces: list[str]
) -> None:
    slot = slot_of(root)
    ends = Ends()
    launch = launch_of(
        namespaces,
        "sh",
        "-c",
        "trap 'echo asked' TERM; sleep 1000 & echo ready; while :; do wait; done",
    )
    instance = await runtime.start(slot, launch, ends)
    await eventually(lambda: "ready" in slot.log.read_text())
    grandchildren = [g for c in children_of(instance.claim.pid) for g in children_of(c)]
    assert grandchildren
    await runtime.signal(instance, signal.SIGTERM)
    await eventually(lambda: "asked" in slot.log.read_text())
    assert instance.exit is None
    await runtime.kill(instance)
    assert await ends.of(instance) == 137
    await eventually(lambda: not any(start_of(pid) for pid in grandchildren))


async def test_a_killed_shim_is_an_unknown_end(
    runtime: Runtime, root: Path, namespaces: list[str]
) -> None:
    slot = slot_of(root)
    ends = Ends()
    instance = await runtime.start(slot, launch_of(namespaces, "sleep", "1000"), ends)
    os.kill(instance.claim.pid, signal.SIGKILL)
    assert await ends.of(instance) == 137
    assert instance.exit is not None and instance.exit.reason == "ContainerStatusUnknown"


async def test_after_a_reboot_nothing_of_before_is_believed_to_run(
    runtime: Runtime, root: Path, namespaces: list[str]
) -> None:
    """A claim names its boot: a process that has the pid now is somebody else, even with the same
    start time."""
    slot = slot_of(root)
    instance = await runtime.start(slot, launch_of(namespaces, "sleep", "1000"), Ends())
    pid, _, start = (slot.directory / "claim").read_text().partition(" ")
    (slot.directory / "claim").write_text(f"{pid} {start.partition('@')[0]}@another-boot\n")
    runtime._unwatch(instance)
    again = runtime.adopt(slot, Ends())
    assert again is not None and again.exit is not None
    assert (again.exit.code, again.exit.reason) == (137, "ContainerStatusUnknown")
    assert start_of(int(pid)), "the stranger was left alone"
    await runtime.signal(instance, signal.SIGKILL)


async def test_a_killed_spawner_costs_nothing(
    runtime: Runtime, root: Path, namespaces: list[str]
) -> None:
    slow = slot_of(root, "slow")
    ends = Ends()
    instance = await runtime.start(
        slow, launch_of(namespaces, "sh", "-c", "sleep 0.5; exit 7"), ends
    )
    spawner = runtime._spawner
    assert spawner is not None
    os.kill(spawner.pid, signal.SIGKILL)
    others = [
        run(runtime, slot_of(root, f"other-{n}"), launch_of(namespaces, "true")) for n in range(5)
    ]
    assert await asyncio.gather(*others) == [0] * 5
    assert await ends.of(instance) == 7


async def test_a_mount_that_cannot_be_made_starts_nothing(
    runtime: Runtime, root: Path, isolation: Isolation
) -> None:
    if not isolation.mounts:
        pytest.skip("this machine allows no mount namespaces")
    slot = slot_of(root)
    launch = launch_of(
        list(isolation.namespaces), "true", mounts=[(str(root / "not-there"), "/data", False)]
    )
    with pytest.raises(CannotStart, match="No such file"):
        await runtime.start(slot, launch, Ends())
    assert slot.claim() is None


async def test_mounts_appear_where_nothing_was_and_leave_the_machine_alone(
    runtime: Runtime, root: Path, isolation: Isolation
) -> None:
    if not isolation.mounts:
        pytest.skip("this machine allows no mount namespaces")
    volume, secret, hosts = root / "volume", root / "secret", root / "hosts"
    volume.mkdir()
    secret.mkdir()
    (secret / "key").write_text("s3cret")
    hosts.write_text("127.9.9.9\tpeer.job\n")
    mounts = [
        (str(volume), "/hekla-test-volume/deep", False),
        (str(secret), "/etc/hekla-test/secret", True),
        (str(hosts), "/etc/hosts", False),
        (str(volume), "/var/run/hekla-test", False),
    ]
    script = (
        "cat /etc/hekla-test/secret/key /etc/hosts; echo x > /hekla-test-volume/deep/made; "
        "touch /etc/hekla-test/secret/no 2>/dev/null || echo read-only; ls /var/run/hekla-test; hostname; "
        "test -e /etc/passwd && test -e /usr/bin && test -c /dev/null && echo whole"
    )
    slot = slot_of(root)
    code = await run(
        runtime,
        slot,
        launch_of(list(isolation.namespaces), "sh", "-c", script, mounts=mounts, hostname="pod-0"),
    )
    seen = slot.log.read_text()
    assert (code, seen) == (0, "s3cret127.9.9.9\tpeer.job\nread-only\nmade\npod-0\nwhole\n")
    assert (volume / "made").exists()
    assert not any(
        Path(path).exists()
        for path in ("/hekla-test-volume", "/etc/hekla-test", "/var/run/hekla-test")
    )


CRASH = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {source!r})
from tests.kubelet.test_runtime import slot_of, launch_of, Runtime

async def main():
    runtime = Runtime()
    async def one(number):
        slot = slot_of(Path({root!r}), f"c{{number}}")
        script = (
            f"echo begin >> {root}/count-{{number}}; "
            f"for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.03; done; exit $(({{number}} % 5))"
        )
        await runtime.start(slot, launch_of({namespaces!r}, "sh", "-c", script), lambda instance: None)
    print("go", flush=True)
    await asyncio.gather(*(one(number) for number in range({count})))
    await asyncio.sleep(100)

asyncio.run(main())
"""


async def test_killed_at_any_moment_the_agent_finds_everything_again(
    root: Path, namespaces: list[str]
) -> None:
    """kill -9 while containers start: each runs exactly once, with its exit code and every line."""
    count = 12
    source = str(Path(__file__).parents[2])
    for after in (0.0, 0.02, 0.05, 0.1):
        program = CRASH.format(source=source, root=str(root), namespaces=namespaces, count=count)
        victim = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=source
        )
        assert victim.stdout is not None and victim.stdout.readline() == b"go\n"
        await asyncio.sleep(after)
        victim.kill()
        victim.wait()
    runtime = Runtime()
    ends = {}
    for number in range(count):
        slot, told = slot_of(root, f"c{number}"), Ends()
        launch = slot.launch() or launch_of(namespaces, "sh", "-c", f"exit {number % 5}")
        ends[number] = (await runtime.start(slot, launch, told), told, slot)
    for number, (instance, told, slot) in ends.items():
        assert await told.of(instance) == number % 5
        counter = root / f"count-{number}"
        if counter.exists():
            assert counter.read_text() == "begin\n", f"container {number} ran twice"
            assert slot.log.read_text() == "".join(f"line {i}\n" for i in range(1, 11))
    runtime.close()


@pytest.mark.parametrize(
    ("script", "grace", "code"),
    [
        ("echo up; exec sleep 1000", 60.0, 143),
        ("trap '' TERM; echo up; while :; do sleep 1000; done", 0.3, 137),
    ],
    ids=["polite", "deaf"],
)
async def test_down_ends_what_runs(
    root: Path, namespaces: list[str], script: str, grace: float, code: int
) -> None:
    runtime = Runtime()
    slots = [slot_of(root, name) for name in ("one", "two")]
    instances = [
        await runtime.start(slot, launch_of(namespaces, "sh", "-c", script), lambda _: None)
        for slot in slots
    ]
    await eventually(lambda: all(slot.log.read_text() == "up\n" for slot in slots))
    runtime.close()
    assert stop_all(root, grace) == 2
    assert not any(instance.claim.alive() for instance in instances)
    ends = [slot.exit() for slot in slots]
    assert [end and end.code for end in ends] == [code] * 2
    assert stop_all(root) == 0
