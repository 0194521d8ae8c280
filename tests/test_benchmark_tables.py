"""Tables of the benchmarks at 80 columns: every figure to its last digit."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from benchmarks.log_report import Figure, Report
from benchmarks.whole_table import print_whole
from benchmarks.workload import Result

LONG = "spark_log, keyed, without shuffle, by_partition, two executors, checkpoint of yesterday"


@pytest.fixture
def screen():
    return Console(width=80, file=io.StringIO())


def test_figures_of_the_log(screen):
    Report("appends", [Figure(LONG, 0.123456, unit="ms", at_most=1234567.5)]).print(screen)
    shown = screen.file.getvalue()
    assert "…" not in shown
    assert "0.123 ms" in shown
    assert "≤ " in shown
    assert LONG in shown


def test_rates_and_ratios_of_cases(screen):
    seconds = {LONG: [1.5, 2.5, 2.0], f"{LONG} again": [3.0, 4.0, 5.0]}
    against = {LONG: list(seconds)}
    Result("writes", 1_234_567, seconds, against).print(screen)
    shown = screen.file.getvalue()
    assert "…" not in shown
    for figure in ("0.62", "0.49-0.82", "0.31", "0.25-0.41", "2.00x"):
        assert figure in shown


def test_a_wide_table_is_printed_whole(screen):
    table = Table("", *(f"library {number}" for number in range(8)))
    table.add_row("put-if-absent of 8 MB, p99", *["0.12345 ms"] * 8)
    print_whole(table, screen)
    assert screen.file.getvalue().count("0.12345 ms") == 8


def test_a_wide_terminal_keeps_its_width():
    wide = Console(width=200, file=io.StringIO())
    print_whole(Table("a"), wide)
    assert wide.width == 200
