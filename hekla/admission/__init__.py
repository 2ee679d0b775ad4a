"""Admission webhooks: they check new objects of the batch kinds and fill in defaults.

Each kind has a module of pure functions: `mutate(review) -> Patch` and `validate(review)
-> str` (an empty text allows).  They see one `Review`: the request, the `Settings` of the process
and a `Lookup` that answers from caches; no rule talks to the network, reads a clock or keeps
anything.  The HTTPS server (`daemon`) and the tests call the same entry:

    verdict = review("/jobs/validate", "CREATE", job, None, StaticLookup(queues=[...]), Settings())
    verdict.allowed, verdict.message, verdict.patch

Objects are JSON trees (dict).  `path` is a path of the original's `--enabled-admission`.  `patch`
is a list of JSON patch operations, or None where there is nothing to change.
`tests.admission.cases.run(case)` plays a recorded admission case (a dict as in the conformance
files) through this entry and returns what differed, or an empty list.
"""

from hekla.admission.registry import review
from hekla.admission.review import Lookup, Review, Settings, StaticLookup, Verdict

__all__ = ["Lookup", "Review", "Settings", "StaticLookup", "Verdict", "review"]
