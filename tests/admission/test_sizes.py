"""How large a job may be: refused with the field, its value and the bound, which is the cluster's
own."""

import pytest

from hekla.admission import Settings
from hekla.admission.rules.graph import is_acyclic, sorted_tasks
from tests.admission.objects import Tree, ask, job, patched, task

MOST = 2**31 - 1
CREATE, UPDATE, MUTATE = "/jobs/validate", "/jobs/validate", "/jobs/mutate"


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        (
            job(task(replicas=MOST)),
            "spec.tasks[0].replicas: 2147483647 is more than the 100000 pods that a job of this cluster may have",
        ),
        (
            job(task("a", 60_000), task("b", 50_000)),
            "spec.tasks[*].replicas: the sum 110000 is more than the 100000 pods",
        ),
        (
            job(*(task(f"t{index}") for index in range(1001))),
            "spec.tasks: 1001 is more than the 1000 tasks that a job",
        ),
    ],
)
def test_a_job_that_is_too_large_is_refused(obj: Tree, text: str) -> None:
    verdict = ask(CREATE, obj)
    assert not verdict.allowed and text in verdict.message


def test_the_bound_is_the_clusters_own() -> None:
    assert ask(CREATE, job(task(replicas=100_000))).allowed
    assert ask(CREATE, job(task(replicas=MOST)), settings=Settings(max_job_pods=0)).allowed
    verdict = ask(CREATE, job(task(replicas=11)), settings=Settings(max_job_pods=10))
    assert "11 is more than the 10 pods" in verdict.message and "--max-job-pods" in verdict.message


def test_a_stored_job_above_the_bound_may_shrink_and_not_grow() -> None:
    old = job(task(replicas=200_000))
    assert ask(UPDATE, job(task(replicas=150_000)), old=old).allowed
    assert ask(UPDATE, old, old=old).allowed
    assert "200001 is more than" in ask(UPDATE, job(task(replicas=200_001)), old=old).message


def test_a_minimum_that_is_filled_in_fits_its_field() -> None:
    """Its own sum would be refused as a number of 64 bits that nobody has written."""
    made = patched(
        MUTATE,
        {"metadata": {"name": "train"}, "spec": {"tasks": [task("a", MOST), task("b", MOST)]}},
    )
    assert made["spec"]["minAvailable"] == MOST


def test_a_flow_has_as_many_steps_as_a_job_has_tasks() -> None:
    flows = [{"name": f"f{index}"} for index in range(1001)]
    body = {"metadata": {"name": "f", "namespace": "default"}, "spec": {"flows": flows}}
    assert (
        "spec.flows: 1001 flows are more than the 1000" in ask("/jobflows/validate", body).message
    )


def test_long_chains_cost_their_length() -> None:
    names = [f"t{index}" for index in range(50_000)]
    chain = {name: [before] for before, name in zip(["", *names], names, strict=False)}
    chain["t0"] = []
    backwards = dict(reversed(chain.items()))
    assert sorted_tasks(backwards) == names and is_acyclic(backwards)
    chain["t0"] = ["t49999"]
    assert sorted_tasks(chain) is None and not is_acyclic(chain)
