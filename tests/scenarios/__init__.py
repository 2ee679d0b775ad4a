"""Which acceptance scenarios of the behaviour reference are covered by a test, and which of them
pass.

`python -m tests.scenarios` reads the numbered scenarios from the reference's pages, runs the tests
that carry them (`@pytest.mark.scenario(page, number)`) and prints both beside each other.
"""
