"""Jobs that changed since somebody counted what each of them holds: sums cost what changed."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from hekla.engine.model.tasks import Job


class ChangedJobs(dict[str, Job]):
    """By key; those have to be looked at again.  `counted`: keys of the jobs that are in the sums."""

    def __init__(self, counted: Container[str]) -> None:
        super().__init__()
        self.counted = counted

    def mark(self, job: Job, there: bool) -> None:
        """The job changed, or is gone."""
        if there or job.key in self.counted:
            self[job.key] = job
        else:
            self.pop(job.key, None)

    def take(self, jobs: Mapping[str, Job]) -> Iterator[tuple[Job, bool]]:
        """Each with whether it is among `jobs`, which are all that there are; none is left then."""
        for key, job in self.items():
            yield job, jobs.get(key) is job
        self.clear()
