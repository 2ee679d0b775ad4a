"""What an image name means on a machine without images: which command stands in for the one that
the image would bring.

A container with a command runs that command on this machine's own programs, whatever its image is
called.  Only a container without one needs this table.  Rows are matched on the repository,
registry and `library/` left out; users add rows in a YAML file (`--images FILE`), which are looked
at first:

    - image: "example.com/team/server*"      # shell pattern; a tag may follow, `repository:tag`
      entrypoint: [/opt/server/bin/server]   # what args are appended to; may be left out
      command: [--port, "8080"]              # what args replace
    - image: "tensorflow/*"
      path: [/home/me/.venvs/tf/bin]         # searched first for programs: what the image brings
    - image: "*:*-broken"
      refuse: true                           # as a registry that does not have it
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import yaml

from hekla.api.text import yamltext

SUBSTITUTES = Path(__file__).parents[1] / "substitutes"
PAUSE = "trap 'exit 0' TERM INT QUIT; while :; do sleep 86400 & wait $!; done"
WORD = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
NAME = re.compile(rf"(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?{WORD}(?:/{WORD})*")
"""Registry and repository."""
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")


class ImageError(Exception):
    """The image cannot be used.  `reason` is the waiting reason that Kubernetes has for it."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class TableError(Exception):
    """The user's file of images is wrong; the text is the whole message."""


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """One row of the table."""

    image: str
    entrypoint: list[str] = []
    command: list[str] = []
    path: list[str] = []
    """Directories that come first in PATH, also for a container with a command of its own."""
    refuse: bool = False
    port: bool = False
    """The command takes the container's port as its last argument."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image reference, taken apart."""

    repository: str
    """Without registry docker.io and `library/`."""
    tag: str
    digest: str


def parse(reference: str) -> Image:
    """Takes a reference apart.  Raises ImageError with reason InvalidImageName."""
    name, _, digest = reference.partition("@")
    head, slash, last = name.rpartition("/")
    last, colon, tag = last.partition(":")
    repository = f"{head}{slash}{last}"
    if not NAME.fullmatch(repository) or (colon and not TAG.fullmatch(tag)):
        raise ImageError(
            "InvalidImageName",
            f'Failed to apply default image tag "{reference}": couldn\'t parse image name "{reference}": invalid reference format',
        )
    for prefix in ("docker.io/", "index.docker.io/", "library/"):
        repository = repository.removeprefix(prefix)
    return Image(repository, tag or ("" if digest else "latest"), digest)


SERVER = [sys.executable, "-I", "-S", str(SUBSTITUTES / "web.py")]
BUILT_IN = [
    Row("*:*nonexist*", refuse=True),
    Row("*:*non-exist*", refuse=True),
    Row("nginx*", command=SERVER, port=True),
    Row("*/nginx*", command=SERVER, port=True),
    Row("httpd", command=SERVER, port=True),
    Row(
        "*/agnhost*",
        entrypoint=[sys.executable, "-I", "-S", str(SUBSTITUTES / "agnhost.py")],
        command=["pause"],
    ),
    Row("pause*", entrypoint=["sh", "-c", PAUSE, "pause"]),
    Row("*/pause*", entrypoint=["sh", "-c", PAUSE, "pause"]),
    *(
        Row(name, command=["true"])
        for shell in (
            "busybox",
            "alpine",
            "ubuntu",
            "debian",
            "fedora",
            "centos",
            "rockylinux",
            "almalinux",
            "python",
            "bash",
            "perl",
        )
        for name in (shell, f"*/{shell}")
    ),
    Row(
        "hello-world",
        command=[
            "echo",
            "Hello from Hekla!  This line came from a stand-in for the image hello-world.",
        ],
    ),
]


class Images:
    """The table."""

    def __init__(self, rows: list[Row] | None = None) -> None:
        self.rows = [*(rows or []), *BUILT_IN]
        self._paths = any(row.path for row in self.rows)

    @classmethod
    def load(cls, file: str) -> Images:
        """The built-in table with a user's file before it.  Raises TableError."""
        if not file:
            return cls()
        try:
            tree = yamltext.load(Path(file).read_text())
            return cls(msgspec.convert(tree or [], list[Row]))
        except OSError as error:
            raise TableError(f"--images: cannot read {file}: {error.strerror}") from error
        except (yaml.YAMLError, msgspec.ValidationError) as error:
            raise TableError(
                f"--images: {file}: {error}; a row looks like {{image: 'name*', entrypoint: [...], command: [...], path: [...]}}"
            ) from error

    def row(self, image: Image) -> Row | None:
        """The first row that matches."""
        for row in self.rows:
            pattern, colon, tag = row.image.rpartition(":")
            if not colon or "/" in tag:
                pattern, tag = row.image, "*"
            if fnmatchcase(image.repository, pattern) and fnmatchcase(image.tag, tag):
                return row
        return None

    def path(self, reference: str) -> list[str]:
        """The directories in which the image's programs lie.  Raises ImageError."""
        if not self._paths:
            return []
        row = self.row(parse(reference))
        return row.path if row is not None else []

    def argv(
        self, reference: str, command: list[str], args: list[str], port: int | None = None
    ) -> list[str]:
        """What to run for a container.  Raises ImageError where that cannot be known."""
        image = parse(reference)
        row = self.row(image)
        if row is not None and row.refuse:
            raise ImageError("ErrImagePull", not_found(reference))
        if command:
            return [*command, *args]
        if row is None or (row.path and not row.entrypoint and not (row.command or args)):
            raise ImageError(
                "ErrImagePull",
                f"{not_found(reference)}. This node has no images, only this machine's programs, and does not know what "
                f'"{image.repository}" would run: give the container a command, or add the image to the table (--images FILE)',
            )
        if args:
            return [*row.entrypoint, *args]
        return [*row.entrypoint, *row.command, *([str(port)] if row.port and port else [])]


def not_found(reference: str) -> str:
    """A missing image in a registry's words."""
    image = parse(reference)
    first, slash, _ = image.repository.partition("/")
    registry = (
        ""
        if slash and ("." in first or ":" in first)
        else "docker.io/"
        if slash
        else "docker.io/library/"
    )
    full = f"{registry}{image.repository}" + (
        f"@{image.digest}" if image.digest else f":{image.tag}"
    )
    return f'failed to pull and unpack image "{full}": failed to resolve reference "{full}": {full}: not found'
