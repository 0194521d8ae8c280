"""The pages that compare spark-log with Kafka and its connector name tests that exist."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    "docs/internals/cleaner-parity.md",
    "docs/internals/kafka-connector-parity.md",
    "docs/internals/replication-parity.md",
    "docs/internals/transactions-parity.md",
]


@cache
def sources(folder: str, name: str) -> tuple[str, ...]:
    """Return the text of each file of a name, below a folder if the name has none."""
    if "/" in name:
        return (ROOT.joinpath(name).read_text("utf-8"),) if ROOT.joinpath(name).exists() else ()
    return tuple(path.read_text("utf-8") for path in ROOT.joinpath(folder).rglob(name))


def missing(page: str) -> Iterator[str]:
    """Yield what the second column names and no test file has.

    A file is looked for below the folder that the section names, then in all tests; a class or test
    in the files that are named before it in its cell, or in the heading. A name that ends with
    ``…`` is a beginning.
    """
    folder, of_section = "tests", ""
    for line in ROOT.joinpath(page).read_text("utf-8").splitlines():
        if found := re.search(r"`(tests/[\w/]*/)`", line):
            folder = found[1]
        if line.startswith("#"):
            of_section = " ".join(re.findall(r"[\w/]+\.py", line))
        if not re.match(r"\| .* \| .* \|", line) or line.startswith("|---"):
            continue
        cell = line.split(" | ")[1]
        texts: tuple[str, ...] = ()
        for name in re.findall(r"[\w/]+\.py|\bTest[A-Z]\w+|\btest_\w+…?", f"{of_section} {cell}"):
            if name.endswith(".py"):
                texts += (own := sources(folder, name) or sources("tests", name))
                exists = bool(own)
            else:
                what = "class" if name.startswith("Test") else "def"
                stem, end = (name[:-1], "") if name.endswith("…") else (name, r"\b")
                exists = any(re.search(rf"\b{what} {stem}{end}", text) for text in texts)
            if not exists:
                yield f"{name} in: {line[:60]}"


@pytest.mark.parametrize("page", PAGES)
def test_each_named_test_exists(page):
    assert list(missing(page)) == []


def test_each_named_test_of_sparks_connector_has_passed_through_a_gateway():
    """The page names the connector's test for each thing that a source in Python cannot do."""
    page = ROOT.joinpath("docs/internals/kafka-connector-parity.md").read_text("utf-8")
    _, _, section = page.partition("## Through the gateway")
    named = re.findall(r"`([\w.]+Suite\w*: [^`]+)`", section)
    results = json.loads(ROOT.joinpath("tests/gateway/suites/results.json").read_text("utf-8"))
    passed = set(results["spark-kafka-tests"]["passed"])
    assert len(named) > 20
    assert [each for each in named if each not in passed] == []


def test_a_name_without_a_test_is_found(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(
        "Tests are in `tests/docs/`.\n"
        "| a | `test_parity_pages.py`, `test_each_named…`, `test_no_such`, TestNone | same | |\n"
        "| b | `test_no_file.py` | same | |\n"
    )
    found = [each.split(" in: ")[0] for each in missing(str(page))]
    assert found == ["test_no_such", "TestNone", "test_no_file.py"]
