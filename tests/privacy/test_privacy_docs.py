"""The examples in the documentation are true."""

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_examples_of_the_contract_run():
    results = doctest.testfile(str(DOCS / "privacy.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert results.attempted >= 10
    assert results.failed == 0


@pytest.mark.parametrize("name", ["privacy.md", "sharp-edges.md"])
def test_pages_link_only_to_pages_that_exist(name):
    text = (DOCS / name).read_text()
    for link in [part.split(")")[0] for part in text.split("](")[1:]]:
        assert (DOCS / link).exists()
