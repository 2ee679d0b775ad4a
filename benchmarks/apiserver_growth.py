"""`python -m benchmarks.apiserver_growth [WORD ...]`: which steps of the API server take more than their
share for a long list.

Every list and map of every built-in kind (those whose place contains a WORD) is sent through every
step of a write twice, with four times as many entries the second time.  Prints the steps whose
processor time grows much more than that, with both times; prints nothing else.  Times are the least
of several, so that what else the machine does is left out.
"""

from __future__ import annotations

import gc
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.apiserver.samples import body
from tests.apiserver_objects.growth import Place, Steps, carried, places

FEW = 1000
SHORT = 0.05
"""Seconds of the larger list below which nothing is wrong."""
LONGEST = 2.0
LARGEST = 1_500_000
"""Bytes of an object."""
MOST = 7.0
"""Times that four times as much may take: four, and what caches lose."""


class TooLong(BaseException):
    """A step took longer than `LONGEST`."""


def stop(*_: object) -> None:
    raise TooLong


def seconds(step: Callable[[], Any], times: int) -> float:
    least = LONGEST
    for _ in range(times):
        gc.collect()
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        try:
            carried(step)
        except TooLong:
            break
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        least = min(least, time.process_time() - started)
    return least


def base(place: Place) -> dict[str, Any]:
    try:
        return body(place.kind.group, place.kind.kind, "a")
    except LookupError:
        return {"metadata": {"name": "a"}}


def suspicious(
    few: Callable[[], Any], many: Callable[[], Any], times: int
) -> tuple[float, float] | None:
    after = seconds(many, times)
    if after < SHORT:
        return None
    if after >= LONGEST:
        return 0.0, after
    before = seconds(few, times)
    return (before, after) if after > MOST * before else None


def main(words: list[str]) -> None:
    signal.signal(signal.SIGPROF, stop)
    gc.disable()
    for place in places():
        if words and not any(word in str(place) for word in words):
            continue
        count = FEW
        while len(Steps(place, base(place), 4 * count).body) > LARGEST:
            count //= 2
        few, many = (
            Steps(place, base(place), count).steps(),
            Steps(place, base(place), 4 * count).steps(),
        )
        for name in few:
            try:
                found = suspicious(few[name], many[name], 1)
                if found is not None:
                    found = suspicious(few[name], many[name], 3)
            except Exception as error:
                print(f"{place}: {name}: {type(error).__name__}: {error}", flush=True)
                continue
            if found is not None:
                before, after = found
                print(
                    f"{place}: {name}: {1000 * before:.1f} ms, of four times as many {1000 * after:.1f} ms",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1:])
