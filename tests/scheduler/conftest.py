"""The API servers that the scheduler's live tests speak to: Hekla's own, and in the slow lane a
kube-apiserver with etcd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apiserver_process import ApiServerProcess
from tests.deploy import accounts
from tests.kubernetes import programs


@pytest.fixture(
    scope="module", params=["hekla", pytest.param("kubernetes", marks=programs.slow(90))]
)
def kubeconfig(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The kubeconfig of a server without nodes."""
    if request.param == "hekla":
        with ApiServerProcess.started(tmp_path_factory.mktemp("apiserver")) as server:
            yield server.internal_kubeconfig
        return
    from tests.kubernetes.reference import reference

    programs.wanted(*programs.SERVER)
    with reference() as started:
        accounts.grant(started.kubeconfig, "scheduler", accounts.SCHEDULER)
        yield started.kubeconfig


def of_scheduler(kubeconfig: Path) -> Path:
    """The kubeconfig of the account that the chart would give the scheduler, where there is one."""
    own = kubeconfig.with_name("scheduler.kubeconfig")
    return own if own.exists() else kubeconfig
