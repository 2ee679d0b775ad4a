"""PyTorch's example leaves nothing running behind itself: what outlives the interpreter aborts now
and then, on a busy machine."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.frameworks.environments import PYTORCH
from tests.frameworks.runs import MANIFESTS

WATCHED = """
import sys, weakref
import torch.distributed as dist

groups = []
make = dist.init_process_group

def make_and_note(*args, **kwargs):
    make(*args, **kwargs)
    groups.append(weakref.ref(dist.group.WORLD))

dist.init_process_group = make_and_note
exec(compile(open(sys.argv[1]).read(), "train.py", "exec"))
print("groups left:", [group() for group in groups])
"""
"""The program with its variables alive at the end, as they are in a module, and what has become of
the group."""


@pytest.mark.slow
@pytest.mark.timeout(780)
def test_pytorch_s_group_is_gone_once_it_is_destroyed(tmp_path: Path) -> None:
    """Its threads end with it; one that is still to drop a tensor when the interpreter ends takes
    the process down (decision 0223)."""
    python = PYTORCH.environment() / "bin" / "python"
    program = tmp_path / "train.py"
    program.write_text(
        next(yaml.safe_load_all((MANIFESTS / "pytorch.yaml").read_text()))["data"]["train.py"]
    )
    alone = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "WORLD_SIZE": "1", "RANK": "0"}
    done = subprocess.run(
        [python, "-c", WATCHED, program],
        env=os.environ | alone,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        done.stdout == "rank 0 of 1: w=3.000 b=1.000, the same everywhere\ngroups left: [None]\n"
    ), done.stderr
