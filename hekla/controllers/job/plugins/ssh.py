"""The ssh plugin: one key pair a job, mounted so that its pods may log into each other (reference:
controllers 3.4)."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from hekla.api import batch, names
from hekla.api.kubernetes import core
from hekla.controllers.job.plugins.hosts import check_length, domain, hostname, letters, pod_spec
from hekla.controllers.job.plugins.plugin import (
    Dependent,
    Plugin,
    Tree,
    add_mount,
    add_volume,
    all_containers,
    object_meta,
)
from hekla.controllers.job.pod_template import Slot

DEFAULT_PATH = "/root/.ssh"
DEFAULT_PORT = 22
KEYS = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")


class Ssh(Plugin):
    name = "ssh"
    defaults = {
        "ssh-key-file-path": DEFAULT_PATH,
        "ssh-private-key": "",
        "ssh-public-key": "",
        "ssh-port": DEFAULT_PORT,
    }

    def __init__(self, given: Sequence[str]) -> None:
        super().__init__(given)
        port = self.arguments.number("ssh-port")
        self.port = port if 0 < port <= 65535 else DEFAULT_PORT
        self.path = self.arguments.text("ssh-key-file-path")

    def dependents(self, job: batch.Job) -> list[Dependent]:
        return [
            Dependent(
                core.SECRET,
                secret_name(job),
                make=lambda: self._secret(job),
                outdated=lambda existing: (
                    (existing.get("data") or {}).get("config") != _encoded(self.config(job))
                ),
            )
        ]

    def complete(self, job: batch.Job, task: batch.TaskSpec, pod: Tree, slot: Slot) -> None:
        name = secret_name(job)
        add_volume(
            pod,
            {
                "name": name,
                "secret": {
                    "secretName": name,
                    "items": [{"key": key, "path": f".ssh/{key}"} for key in KEYS],
                    "defaultMode": 0o600 if self.path == DEFAULT_PATH else 0o644,
                },
            },
        )
        for container in all_containers(pod):
            add_mount(container, {"name": name, "mountPath": self.path, "subPath": ".ssh"})

    def config(self, job: batch.Job) -> str:
        """The client configuration: every host of the job by its short name, at the port in use."""
        lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
        length = sum(
            letters(task, self._length(job, task))
            for task in job.spec.tasks
            if not pod_spec(task).get("hostname")
        )
        check_length(
            length,
            sum(task.replicas for task in job.spec.tasks),
            f"Secret {secret_name(job)} with the job's hosts",
        )
        for task in job.spec.tasks:
            fixed = bool(pod_spec(task).get("hostname"))
            for index in range(min(task.replicas, 1) if fixed else task.replicas):
                short = hostname(job.metadata.name, task, index)
                lines += self._lines(short, domain(job.metadata.name, task))
        return "\n".join(lines) + "\n"

    def _lines(self, short: str, domain: str) -> list[str]:
        return [f"Host {short}", f"  HostName {short}.{domain}", f"  Port {self.port}"]

    def _length(self, job: batch.Job, task: batch.TaskSpec) -> int:
        """How long the entry of a host is; the host's index counted once."""
        short = hostname(job.metadata.name, task, "")
        return sum(len(line) + 1 for line in self._lines(short, domain(job.metadata.name, task)))

    def _secret(self, job: batch.Job) -> Tree:
        private, public = self._keys()
        contents = dict(zip(KEYS, (private, public, public, self.config(job)), strict=True))
        return {
            "metadata": object_meta(job, secret_name(job)),
            "data": {key: _encoded(text) for key, text in contents.items()},
        }

    def _keys(self) -> tuple[str, str]:
        given = self.arguments.text("ssh-private-key")
        if given:
            return given, self.arguments.text("ssh-public-key")
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        return private.decode(), public.decode() + "\n"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret_name(job: batch.Job) -> str:
    return names.ssh_secret(job.metadata.name)
