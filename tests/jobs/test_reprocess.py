"""reprocess through ``spark-submit``."""

import subprocess
import sys

import pytest
from deltalake import DeltaTable

from tests.datasource.reading import create, fill
from tests.jobs.conftest import ENVIRONMENT, HOME, report

pytestmark = pytest.mark.spark

MODULE = """
from pyspark.sql import functions as F


def doubled(records):
    number = F.col("value").cast("string").cast("int")
    return records.select("key", (2 * number).cast("string").alias("value"), "partition", "offset")
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A root, and a current directory with a module."""
    (tmp_path / "doubling.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    create(str(tmp_path / "root"), "t", 2)
    fill(str(tmp_path / "root"), "t", 0, range(100), segments=4)
    fill(str(tmp_path / "root"), "t", 1, range(100, 140))
    return str(tmp_path / "root")


@pytest.mark.long
def test_a_range_of_time_goes_through_a_function_into_a_table_once(submit, root, tmp_path):
    argv = (
        "reprocess.py",
        "t",
        "--root",
        root,
        "--json",
        "--name",
        "r",
        "--transform",
        "doubling:doubled",
        "--path",
        tmp_path / "table",
        "--step-records",
        60,
        "--from-time",
        "2013-07-04T00:00:10Z",
        "--to-time",
        "2013-07-04T00:02:00Z",
    )
    first = report(submit(*argv))
    assert (first["resumed"], first["steps"]) == (False, 3)
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().sort_by("offset").to_pylist()
    assert sorted(int(row["value"]) for row in rows) == [2 * each for each in range(10, 120)]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--transform", "doubling:tripled"], "has no attribute 'tripled'"),
        (["--transform", "nonsense"], "expected MODULE:FUNCTION"),
        (["--transform", "doubling:doubled", "--to", "topic"], "needs --to-topic"),
        (["--transform", "doubling:doubled", "--from-time", "noon"], "expected ISO 8601"),
    ],
)
def test_mistakes_are_one_line_before_spark_starts(root, tmp_path, argv, said):
    job = HOME / "jobs/reprocess.py"
    command = [sys.executable, job, "t", "--root", root, "--name", "r", "--path", "table", *argv]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "table").exists()
