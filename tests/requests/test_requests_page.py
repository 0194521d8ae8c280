"""docs/internals/requests.md names each operation, with the budgets that tests hold.

docs/storage.md has the rows and the prices that a user needs.
"""

from contextlib import nullcontext

import pytest

from benchmarks.request_operations import SUBJECTS
from benchmarks.request_operations.operation import Operation
from benchmarks.request_prices import PRICES, Counted, Use, of_a_million_records, of_a_partition
from benchmarks.requests_page import budgets, request_page
from tests.docs.blocks import PROJECT

PAGE = (PROJECT / "docs/internals/requests.md").read_text("utf-8")
STORAGE = (PROJECT / "docs/storage.md").read_text("utf-8")


def check_named(subject, operations):
    """Check that a section of the page has a row for each operation, and no other one."""
    section = PAGE.partition(f"\n## {subject}\n")[2].partition("\n## ")[0]
    _, _, *rows = (row for row in section.splitlines() if row.startswith("|"))
    assert len(rows) == len(operations)
    for row, operation in zip(rows, operations, strict=True):
        assert row.startswith(budgets(operation)), "make bench-requests writes the page"


@pytest.mark.parametrize("subject", SUBJECTS)
def test_the_page_names_each_operation_with_its_budget(subject):
    check_named(subject, SUBJECTS[subject])


def table(page, head):
    """Return the rows of the first table of a page whose head begins with a text, as cells."""
    lines = page.partition(f"\n{head}")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_rows_for_users_are_those_of_the_page():
    counted_rows = {
        row[0]: row[3:5]
        for section in PAGE.split("\n## ")
        for row in table(section, "| operation |")
    }
    million = PAGE.partition("### Each operation, a million times")[2]
    dollars = {row[0]: row[1] for row in table(million, "| |")}
    rows = table(STORAGE, "| operation |")
    assert len(rows) > 8
    for operation, requests, rounds, costs in rows:
        assert counted_rows[operation] == [requests, rounds]
        assert dollars[operation] == costs
    prices = table(PAGE.partition("## What they cost")[2], "| |")
    assert table(STORAGE.partition("## What requests cost")[2], "| |") == prices


def test_tests_that_the_page_names_exist():
    counted_by = {each.counted_by for those in SUBJECTS.values() for each in those}
    for path in counted_by - {""}:
        assert (PROJECT / path).is_file()


def counted(name, **kinds):
    operation = Operation(name, lambda root: nullcontext(print), 10, 10, "for the test")
    writes = kinds.get("PUT", 0) + kinds.get("LIST", 0)
    return Counted(operation, sum(kinds.values()), 1, writes, 0, 0, kinds)


def test_puts_and_listings_cost_more_than_reads_and_deletions_nothing():
    price = {"write": 5, "read": 1}
    assert counted("a", PUT=1, LIST=1, GET=2, HEAD=1, DELETE=4).dollars(price) == 13 / 1000


def test_dollars_of_a_million_records_by_the_size_of_a_batch():
    page = request_page({"Producer": [counted("one acknowledged append", PUT=1)]}, PRICES, [100], 0)
    assert "| sent in batches of 100 | 0.05 | 0.05 | 0.055 |" in page
    assert "| appended to each second | 12.96 | 12.96 | 14.26 |" in page


@pytest.mark.parametrize("use", [*of_a_million_records([1]), *of_a_partition()])
def test_what_is_priced_is_counted(use: Use):
    assert use.operation in {each.name for those in SUBJECTS.values() for each in those}
