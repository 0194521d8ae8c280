"""docs/table.md: its commands and programs run, in their order, by those programs that are here."""

import json
import shlex

import pytest
from deltalake import DeltaTable

from spark_log.testing.spark import spark
from tests.cli.conftest import folder, shell
from tests.cli.support import append
from tests.docs.blocks import block
from tests.jobs.conftest import report, submit
from tests.table import duckdb_program

__all__ = ["folder", "shell", "spark", "submit"]

ROOT = "/data/log"


@pytest.fixture
def root(tmp_path, shell):
    """A root as the page's, with 20 flights in two partitions, and its commands."""
    url = str(tmp_path / "log")

    def run(code):
        for line in code.replace(ROOT, url).splitlines():
            program, *argv = shlex.split(line)
            assert program == "spark-log"
            outcome = shell(*argv, "--root", url)
            assert outcome.status == 0, outcome.err
        return outcome.out

    shell(
        "topics",
        "create",
        "flights",
        "--partitions",
        2,
        "--config",
        "retention.ms=-1",
        "--root",
        url,
    )
    for number in range(20):
        append(url, "flights", b"flight %d" % number, partition=number % 2)
    return url, run


@pytest.fixture
def location(root):
    """The location of the table, after the page's first commands."""
    _, run = root
    assert "Location: " in run(block("docs/table.md", "table describe flights"))
    return json.loads(run("spark-log table describe flights --output json"))["location"]


def run_program(code, capsys, **names):
    """Run a program of the page; return its output."""
    capsys.readouterr()
    exec(compile(code.replace(ROOT, names.pop("root", ROOT)), "docs/table.md", "exec"), names)
    return capsys.readouterr().out


def test_it_is_turned_on_verified_and_turned_off(root, location):
    _, run = root
    assert "0 differences" in run(block("docs/table.md", "table verify"))
    run(block("docs/table.md", "table.format=none"))
    found = json.loads(run("spark-log table describe flights --output json"))
    assert (found["policy"], {each["files"] for each in found["partitions"]}) == ("none", {0})
    run(block("docs/table.md", "table describe flights"))
    assert "0 differences" in run("spark-log table verify flights")


def test_a_command_converts(root):
    _, run = root
    run("spark-log configs alter flights --add-config table.format=delta")
    shown = run(block("docs/table.md", "table convert flights"))
    assert "20 of 20 offsets (100.0%) are in Parquet files" in shown


def test_typed_columns(root, location):
    url, run = root
    run(block("docs/table.md", "table.value.format=json"))
    append(url, "flights", b'{"carrier": "UA", "dep_delay": 2}', partition=0)
    run("spark-log clean flights")
    rows = DeltaTable(location).to_pyarrow_table(filters=[("carrier", "=", "UA")])
    assert rows.select(["carrier", "dep_delay"]).to_pylist() == [
        {"carrier": "UA", "dep_delay": 2.0}
    ]


def test_delta_rs(location, capsys):
    assert (
        run_program(block("docs/table.md", "table.version()"), capsys, location=location).split()[1]
        == "20"
    )


def test_polars(location, capsys):
    pytest.importorskip("polars")
    assert "flight 18" in run_program(
        block("docs/table.md", "scan_delta"), capsys, location=location
    )


def test_duckdb_over_delta_rs(location, capsys):
    code = block("docs/table.md", "to_pyarrow_dataset")
    shown = run_program(code, capsys, location=location, DeltaTable=DeltaTable)
    assert shown.count("10") >= 2


def test_duckdb_by_its_own_reader(location):
    *loaded, query = block("docs/table.md", "delta_scan").strip().splitlines()
    assert loaded == ["INSTALL delta;", "LOAD delta;"], "fetched by conf/fetch-duckdb.sh"
    rows = duckdb_program.query(query.replace("/data/log/flights.bHk2", location)).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(0, 10), (1, 10)]


def test_scan_has_what_the_table_has_not_yet(root, location, capsys):
    url, _ = root
    append(url, "flights", b"later", partition=0)
    assert "11" in run_program(block("docs/table.md", "import scan"), capsys, root=url)


@pytest.mark.spark
def test_spark_reads_the_table_and_both_as_one(root, location, spark, capsys):
    url, _ = root
    append(url, "flights", b"later", partition=0)
    assert "10" in run_program(
        block("docs/table.md", "spark_session(delta=True)"), capsys, location=location
    )
    shown = run_program(block("docs/table.md", "import read_table"), capsys, root=url, spark=spark)
    assert "11" in shown


@pytest.mark.spark
@pytest.mark.long
def test_the_job_converts(root, submit):
    url, run = root
    run("spark-log configs alter flights --add-config table.format=delta")
    run("spark-log configs alter flights --add-config table.commit.interval.ms=0")
    code = block("docs/table.md", "spark-submit").replace(ROOT, url)
    _, script, *arguments = shlex.split(code)
    done = report(submit(script.removeprefix("jobs/"), *arguments, "--json"))
    assert (done["parquet_offsets"], done["table_offsets"]) == (20, 20)
    found = json.loads(run("spark-log table describe flights --output json"))
    assert found["ends"] == {"0": 10, "1": 10}
