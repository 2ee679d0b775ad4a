"""A reader that leaves early gets no trace to look at, whatever was still to come."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hekla.cli.reader import LEFT


@pytest.mark.parametrize(
    "command", ["hekla:main", "hekla:main crds", "vcctl:main", "vcctl:main job"]
)
def test_nobody_reads(command: str) -> None:
    entry, *arguments = command.split()
    module, _, function = entry.partition(":")
    program = f"import sys; sys.stdin.read(); from hekla.cli.{module} import {function}; sys.exit({function}(sys.argv[1:]))"
    with subprocess.Popen(
        [sys.executable, "-c", program, *(arguments or ["--help"])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdout.close()  # before the program has begun to write
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == LEFT
