"""How scenarios are read from a page."""

from __future__ import annotations

import pytest

from tests.scenarios.__main__ import ROOT, batches, dealt, outcomes
from tests.scenarios.pages import read, scenarios_of

PAGE = """
## 6. Rules
1. not a scenario

## 7 Acceptance scenarios
Words.
1. first
### 7.1 More
2. second
   continued
```
3. in a code block
```
## 8 Notes
4. not one either
"""


def test_only_the_section_counts():
    assert scenarios_of(PAGE) == ["1", "2"]


def test_letters_name_scenarios_too():
    assert scenarios_of("## 16. Acceptance scenarios\nA. one\nB. two\n| 3. | a table |\n") == [
        "A",
        "B",
    ]


def test_a_scenario_is_as_good_as_its_worst_test():
    lines: list[dict[str, object]] = [
        {"collected": [[["cli", "1"]], [["cli", "1"], ["cli", "2"]], [["cli", "3"]]]},
        {"test": "a", "outcome": "passed", "scenarios": [["cli", "1"]]},
        {"test": "b", "outcome": "failed", "scenarios": [["cli", "1"], ["cli", "2"]]},
    ]

    covered, ended = outcomes(lines)

    assert covered == {("cli", "1"), ("cli", "2"), ("cli", "3")}
    assert ended["cli", "1"] == {"passed", "failed"}
    assert ended["cli", "3"] == set()


def test_the_pages_beside_the_repository_have_their_numbers_in_order():
    reference = read()
    if not reference:
        pytest.skip("the reference is not beside the repository")
    for names in reference.values():
        assert names == sorted(names, key=lambda name: (len(name), name))


def test_each_file_is_run_once_and_what_starts_programs_last():
    files = {ROOT / "tests" / f"test_{n}.py": "x" * n for n in range(1, 20)}
    slow = ROOT / "tests" / "test_slow.py"

    known, *quick, live = batches(
        {slow: "import tests.kubelet.live_cluster", **files}, limited=True
    )

    assert sorted(name for run in quick for name in run) == sorted(
        f"tests/test_{n}.py" for n in range(1, 20)
    )
    assert known == ["--collect-only", "-qq", *live] and live == ["tests/test_slow.py"]
    assert batches({slow: "subprocess"}, limited=False) == [live]


def test_hands_are_about_as_heavy():
    files = {ROOT / f"{n}": "x" * n for n in (90, 50, 40, 10, 5)}

    assert dealt(files, 2) == [["90", "10"], ["50", "40", "5"]]
    assert dealt({ROOT / "1": ""}, 3) == [["1"]]
