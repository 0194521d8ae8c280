"""The table of metrics."""

from pathlib import Path

import pytest

from spark_log.metrics import definitions, metrics_page

HOME = Path(__file__).parents[2]
TABLES = (
    definitions.EXPORTER,
    definitions.STORAGE,
    definitions.PRODUCER,
    definitions.CONSUMER,
    definitions.CANARY,
    definitions.MIRROR,
    definitions.GATEWAY,
    definitions.SERVE,
)
ALL = [each for table in TABLES for each in table]


def test_the_page_is_generated_from_the_table():
    page = (HOME / "docs/metrics.md").read_text(encoding="utf-8")
    assert page == metrics_page(), "run `make docs`"


def test_each_name_stands_once():
    names = [each.name for each in ALL]
    assert len(names) == len(set(names))


def test_every_definition_is_in_a_table():
    defined = {
        each
        for each in vars(definitions).values()
        if isinstance(each, definitions.MetricDefinition)
    }
    assert defined <= set(ALL)


@pytest.mark.parametrize("each", ALL, ids=lambda each: each.name)
def test_names_follow_the_rules_of_prometheus(each):
    assert each.name.endswith("_total") == (each.type == "counter")
    assert each.help.endswith(".")
    if each.name.startswith("spark_log_") and each.unit:
        assert each.name.removesuffix("_total").endswith(f"_{each.unit}")
