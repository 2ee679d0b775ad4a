"""The page for users tells of the kinds as they are."""

from pathlib import Path

from hekla.api import reference


def test_the_page_of_kinds_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "kinds.md"
    assert page.read_text() == reference.page(), (
        "run: python -m hekla.api.reference > docs/reference/kinds.md"
    )
