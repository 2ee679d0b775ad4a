"""One container of a pod through all its instances: what it is, how it ended, how long it backs
off, and how a kubelet finds it again."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from hekla.api.kubernetes import core
from hekla.local.kubelet.host import Host
from hekla.local.kubelet.pods.statuses import ContainerView, Ended
from hekla.local.kubelet.records import (
    UNKNOWN_EXIT,
    Launch,
    PodDirectory,
    Slot,
    container_digest,
)
from hekla.local.kubelet.runtime import interleaved_logs, logs
from hekla.local.kubelet.runtime.probes import Prober
from hekla.local.kubelet.runtime.runtime import Instance

FIRST_BACK_OFF = 10.0
LONGEST_BACK_OFF = 300.0
MOST_DOUBLINGS = 10
"""Of the first back-off: a float has no room for a thousand of them."""
FORGIVEN_AFTER = 600.0
"""Seconds of running after which earlier ends no longer count."""
LONGEST_MESSAGE = 4096
LONGEST_MESSAGES = 12 * 1024
"""Bytes of termination messages of all containers of a pod."""
LOG_MESSAGE = 2048
LOG_LINES = 80


def back_off(failures: int) -> float:
    """Seconds before the next start after so many ends in a row: 0, 10, 20, 40 ... 300."""
    if failures <= 1:
        return 0.0
    return min(LONGEST_BACK_OFF, FIRST_BACK_OFF * 2.0 ** min(failures - 2, MOST_DOUBLINGS))


def container_id(uid: str, container: str, attempt: int) -> str:
    return f"hekla://{container_digest(uid, container, attempt)}"


def image_id(image: str) -> str:
    return "hekla://sha256:" + hashlib.sha256(image.encode()).hexdigest()


@dataclass(eq=False)
class Container:
    """A container of a pod through all its instances."""

    spec: core.Container
    init: bool
    view: ContainerView
    attempt: int = 0
    """Of the newest slot, or of the first one that is still to be made."""
    instance: Instance | None = None
    failures: int = 0
    start_at: float = 0.0
    """Seconds since the epoch before which it is not started again."""
    pull_failures: int = 0
    prober: Prober | None = None
    probed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Attempts of its probes so far, by kind and by whether they were successful or failed."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    resized: bool = False
    """It was ended to start again with other resources."""
    noted: bool = True
    """The end of `instance` has been taken into the view."""
    killing: asyncio.Task[None] | None = None
    """Ends the instance while the pod goes on."""

    @property
    def sidecar(self) -> bool:
        return self.view.sidecar

    @property
    def running(self) -> bool:
        return self.view.running_since is not None

    def again(self, pod_policy: str, code: int) -> bool:
        """Whether it runs again after an end with this code."""
        if self.sidecar or self.resized:
            return True
        return self.view.again(
            "OnFailure" if self.init and pod_policy == "Always" else pod_policy, code
        )

    @property
    def complete(self) -> bool:
        """An init container that need not be waited for any more."""
        if self.sidecar:
            return self.view.started
        return not self.running and self.view.ended is not None and self.view.ended.code == 0

    def forget_tasks(self) -> None:
        if self.prober is not None:
            self.prober.stop()
            self.prober = None
        if self.killing is not None and self.killing is not asyncio.current_task():
            self.killing.cancel()
        self.killing = None

    def begin(self, instance: Instance, uid: str) -> None:
        """A new instance runs, or has already ended."""
        view = self.view
        if view.ended is not None:
            view.last, view.ended = view.ended, None
        self.instance = instance
        self.resized = False
        self.noted = False
        self.ended = asyncio.Event()
        view.waiting = None
        view.restarts = self.attempt
        view.id = container_id(uid, self.spec.name, self.attempt)
        view.running_since = instance.started
        view.started = self.spec.startup_probe is None
        view.ready = self.spec.readiness_probe is None and view.started
        if instance.exit is not None:
            self.ended.set()

    def note_end(self, pod: core.Pod, host: Host) -> Ended | None:
        """Takes the end of the instance into the view, once; plans the next start.  None when there
        is nothing new."""
        instance = self.instance
        if self.noted or instance is None or instance.exit is None:
            return None
        self.noted = True
        self.forget_tasks()
        host.clock.leave(instance.slot)
        end = ended(pod, self.spec, instance)
        if (
            end.code == UNKNOWN_EXIT
            and host.groups is not None
            and host.groups.out_of_memory(pod.metadata.uid, self.spec.name, instance.slot.attempt)
        ):
            end.reason = "OOMKilled"
        if host.groups is not None:
            host.groups.forget(pod.metadata.uid, self.spec.name, instance.slot.attempt)
        view = self.view
        view.running_since = None
        view.ended = end
        view.ready = view.started = False
        if end.finished - end.started > FORGIVEN_AFTER:
            self.failures = 0
        self.failures += 1
        if self.again(pod.spec.restart_policy, end.code):
            self.start_at = end.finished + back_off(self.failures)
        return end


def ended(pod: core.Pod, spec: core.Container, instance: Instance) -> Ended:
    """The end of an instance, with its termination message: a shorter one in a pod of many
    containers."""
    assert instance.exit is not None
    slot = instance.slot
    most = min(
        LONGEST_MESSAGE,
        LONGEST_MESSAGES // (len(pod.spec.containers) + len(pod.spec.init_containers) or 1),
    )
    message = instance.exit.message or termination_message(spec, slot, instance.exit.code, most)
    return Ended(
        instance.exit.code,
        instance.started,
        instance.exit.finished,
        container_id(pod.metadata.uid, slot.container, slot.attempt),
        instance.exit.reason,
        message,
    )


def termination_message(
    spec: core.Container, slot: Slot, code: int, most: int = LONGEST_MESSAGE
) -> str:
    """What the container left in its termination file, or at the end of its log where it asked for
    that."""
    try:
        # Where the container has no view of its own it could have laid a link to somebody else's
        # file here.
        with os.fdopen(
            os.open(slot.directory / "message", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb"
        ) as file:
            text = file.read(most).decode(errors="replace")
    except OSError:
        text = ""
    if text or code == 0 or spec.termination_message_policy != "FallbackToLogsOnError":
        return text
    try:
        tail = (interleaved_logs if slot.split else logs).log_tail(slot, min(most, LOG_MESSAGE))
    except OSError:
        return ""
    return "".join(tail.decode(errors="replace").splitlines(keepends=True)[-LOG_LINES:])


def containers_of(pod: core.Pod) -> tuple[list[Container], list[Container]]:
    """(init containers, main containers), nothing started yet."""

    def make(spec: core.Container, init: bool) -> Container:
        sidecar = init and spec.restart_policy == "Always"
        first = ("PodInitializing", "") if pod.spec.init_containers else ("ContainerCreating", "")
        return Container(
            spec,
            init,
            ContainerView(
                spec.name,
                spec.image,
                waiting=first,
                sidecar=sidecar,
                policy="" if sidecar else spec.restart_policy,
                rules=spec.restart_policy_rules,
                resources=spec.resources,
                mounts=spec.volume_mounts,
            ),
        )

    return [make(spec, True) for spec in pod.spec.init_containers], [
        make(spec, False) for spec in pod.spec.containers
    ]


def ephemeral_container(spec: core.EphemeralContainer) -> Container:
    """An ephemeral container, which was added to a running pod for debugging: it starts once, and
    the pod's end does not wait for it."""
    whole = msgspec.convert(msgspec.to_builtins(spec), core.Container)
    first = ("ContainerCreating", "")
    return Container(
        whole,
        False,
        ContainerView(
            spec.name, spec.image, waiting=first, policy="Never", mounts=spec.volume_mounts
        ),
    )


def identity(launch: Launch) -> tuple[int, int, list[int]]:
    """Who the container's first process is, as the container sees it: (user, group, all groups)."""
    mapped = "user" in launch.namespaces  # in a user namespace this user is root
    user = launch.user if launch.user is not None else 0 if mapped else os.geteuid()
    group = launch.group if launch.group is not None else 0 if mapped else os.getegid()
    inherited = os.getgroups() if launch.group is None and not mapped else ()
    return user, group, sorted({group, *launch.groups, *inherited})


def restore(
    container: Container,
    pod: core.Pod,
    directory: PodDirectory,
    host: Host,
    on_end: Callable[[Instance], None],
) -> bool:
    """Restore what an earlier kubelet has done for a container.  False where it had not started it."""
    slots = [slot for slot in directory.slots() if slot.container == container.spec.name]
    uid = pod.metadata.uid
    reported = next(
        (
            s
            for s in [*pod.status.init_container_statuses, *pod.status.container_statuses]
            if s.name == container.spec.name
        ),
        None,
    )
    if not slots:
        return restore_lost(container, reported)
    newest = slots[-1]
    container.attempt = newest.attempt
    container.failures = newest.attempt
    for slot in slots[:-1]:
        previous = host.runtime.adopt(slot, lambda _: None)
        if previous is not None and previous.exit is not None:
            container.view.ended = ended(pod, container.spec, previous)
    container.view.restarts = container.attempt
    container.view.image_id = image_id(container.spec.image)
    instance = host.runtime.adopt(newest, on_end)
    if instance is None:
        return True  # prepared, never started: the next start takes the same slot
    launch = newest.launch()
    container.view.user = identity(launch) if launch is not None else None
    container.begin(instance, uid)
    if instance.exit is None:
        host.clock.follow(newest)
        # The reported results of its probes hold until there are new ones.
        if reported is not None and reported.container_id == container.view.id:
            container.view.started = container.view.started or bool(reported.started)
            container.view.ready = container.view.started and (
                container.spec.readiness_probe is None or reported.ready
            )
    return True


def restore_lost(container: Container, reported: core.ContainerStatus | None) -> bool:
    """Restore a container whose records are gone: one that ran is lost, one that had ended is taken
    from the reported status."""
    if reported is None or not (reported.container_id or reported.state.terminated):
        return False
    done = reported.state.terminated
    now = time.time()
    if done is not None:
        container.view.ended = Ended(
            done.exit_code, now, now, done.container_id, done.reason, done.message
        )
    else:
        container.view.ended = Ended(
            UNKNOWN_EXIT,
            now,
            now,
            reported.container_id,
            "ContainerStatusUnknown",
            "The container could not be located when the pod was terminated",
        )
    container.view.id = reported.container_id
    container.view.restarts = reported.restart_count
    container.view.waiting = None
    container.attempt = reported.restart_count
    container.failures = 1
    return True


def message_file(slot: Slot) -> Path:
    """The file behind terminationMessagePath, writable by whoever the container runs as."""
    path = slot.directory / "message"
    if not path.exists():
        path.touch()
        os.chmod(path, 0o666)
    return path
