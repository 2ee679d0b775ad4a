"""What this machine has: cpus, memory, disk, GPUs, and how it calls itself."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import psutil

from hekla import __version__
from hekla.api import names
from hekla.api.kubernetes import core
from hekla.api.text import quantity

KUBELET_VERSION = "v1.36.0"
"""The Kubernetes version whose node behaviour this kubelet has."""
PODS = 110
RESERVED_MEMORY = 100 * 2**20
"""Bytes that are kept back from pods, as a kubelet's eviction threshold does."""

Amounts = dict[str, str | int | float]


def cpus() -> int:
    """The cpus that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def gpus() -> int:
    """NVIDIA GPUs, as nvidia-smi lists them; 0 without it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return 0
    try:
        done = subprocess.run(
            [program, "-L"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def sizes(
    directory: Path, cpu: str = "", memory: str = "", gpu: int | None = None
) -> tuple[Amounts, Amounts]:
    """(capacity, allocatable) of a node: of stated size where it is stated, else the machine's."""
    total = quantity.whole(memory) if memory else psutil.virtual_memory().total
    disk = psutil.disk_usage(str(directory)).total
    capacity: Amounts = {
        "cpu": quantity.canonical(cpu) if cpu else str(cpus()),
        "memory": quantity.canonical(memory) if memory else f"{total // 1024}Ki",
        "ephemeral-storage": f"{disk // 1024}Ki",
        "pods": str(PODS),
    }
    allocatable = dict(capacity)
    if not memory:
        allocatable["memory"] = f"{max(0, total - RESERVED_MEMORY) // 1024}Ki"
    count = gpus() if gpu is None else gpu
    if count:
        capacity[names.NVIDIA_GPU] = allocatable[names.NVIDIA_GPU] = str(count)
    return capacity, allocatable


def architecture() -> str:
    """In Go's words."""
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return f"{platform.system()} {platform.release()}"


def info() -> core.NodeSystemInfo:
    """nodeInfo of a node of this machine."""
    return core.NodeSystemInfo(
        machine_id=read("/etc/machine-id"),
        system_uuid=read("/sys/class/dmi/id/product_uuid") or read("/etc/machine-id"),
        boot_id=read("/proc/sys/kernel/random/boot_id"),
        kernel_version=platform.release(),
        os_image=os_image(),
        container_runtime_version=f"hekla://{__version__}",
        kubelet_version=KUBELET_VERSION,
        operating_system="linux",
        architecture=architecture(),
    )


def name() -> str:
    """The machine's name as a node may be called."""
    text = re.sub(r"[^a-z0-9.-]", "-", platform.node().lower()).strip("-.")
    return text[:63].strip("-.") or "localhost"
