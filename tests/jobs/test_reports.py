"""Reports of jobs: records read and written, and a warning if nothing was written.

The jobs run in this process, in one session.
"""

import json

import pytest
from deltalake import DeltaTable

from spark_log import Admin
from spark_log.testing.spark import spark
from tests.datasource.reading import create, fill, log_of
from tests.jobs.conftest import reported

__all__ = ["spark"]

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

TRANSFORMS = """
from pyspark.sql import functions as F


def by_quoted_number(records):
    parsed = F.from_json(F.col("value").cast("string"), "n double")
    return records.select("offset", parsed["n"].alias("n")).where("n > 0")


def some_rows_twice(records):
    assert records.limit(1).count() == 1  # a separate query, which reads less
    few = records.where("offset % 10 = 0").select("offset", "value")
    return few.unionByName(few)
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A topic of two partitions with 100 and 40 records, one second apart."""
    (tmp_path / "reported_transforms.py").write_text(TRANSFORMS)
    monkeypatch.chdir(tmp_path)
    root = str(tmp_path / "root")
    create(root, "t", 2)
    fill(root, "t", 0, range(100), segments=2)
    fill(root, "t", 1, range(40))
    return root


@pytest.mark.long
def test_reprocess_counts_what_the_function_is_given_and_what_it_gives(job, tmp_path):
    report = reported(
        job(
            "reprocess",
            "t",
            "--name",
            "r",
            "--transform",
            "reported_transforms:some_rows_twice",
            "--path",
            tmp_path / "table",
            "--json",
            "--step-records",
            "60",
            "--from-time",
            "2013-07-04T00:00:10Z",
            "--to-time",
            "2013-07-04T00:01:00Z",
        )
    )
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().num_rows
    assert (
        (report["records_read"], report["records_written"]) == (50 + 30, 2 * (5 + 3)) == (80, rows)
    )
    assert report["steps"] > 1
    assert "warning" not in report


def test_reprocess_says_in_words_that_no_row_was_written(job, root, tmp_path):
    create(root, "quoted")
    log_of(root, "quoted").append(_values(b'{"n":"1"}', b'{"n":"2"}'))
    argv = ["quoted", "--transform", "reported_transforms:by_quoted_number"]
    argv += ["--path", str(tmp_path / "table")]
    status, out, _ = job("reprocess", *argv, "--name", "text")
    assert status == 0
    words = " ".join(out.replace("│", " ").split())
    assert "2 records were read, and no row was written" in words
    assert "from_json returns null for a value of another type" in words

    report = reported(job("reprocess", *argv, "--name", "json", "--json"))
    assert (report["records_read"], report["records_written"]) == (2, 0)
    assert report["warning"].startswith("2 records were read, and no row was written")

    again = reported(job("reprocess", *argv, "--name", "json", "--json"))
    assert again["warning"] == "nothing was done: the run was already complete"


def test_replay_counts_all_records_and_those_that_it_shows(job, tmp_path):
    done = job("replay", "t", "--show", "2", "--json")
    report = reported(done)
    assert (report["records_read"], report["records_written"]) == (140, 2)
    shown = [json.loads(line) for line in done[1].splitlines()[:-1]]
    assert [(each["partition"], each["offset"]) for each in shown] == [(0, 0), (0, 1)]
    report = reported(job("replay", "t", "--show", "0", "--json"))
    assert (report["records_read"], report["records_written"]) == (140, 0)
    report = reported(job("replay", "t", "--to", "jsonl", "--path", tmp_path / "out", "--json"))
    assert (report["records_read"], report["records_written"]) == (140, 140)


def test_replay_reads_a_range_of_times_in_any_form(job):
    ten_seconds_ms = 1_372_896_010_000  # 2013-07-04T00:00:10Z
    for begin, end, count in (
        (ten_seconds_ms, "2013-07-04T00:01:00Z", 50 + 30),
        ("20130704", "20130705", 140),
        ("2013-07-04T00:00:10.000001", ten_seconds_ms + 30_000, 29 + 29),
    ):
        report = reported(job("replay", "t", "--from-time", begin, "--to-time", end, "--json"))
        assert report["records_read"] == count, (begin, end)


def test_a_range_of_times_that_ends_before_it_starts_is_refused(job):
    status, _, err = job("replay", "t", "--from-time", "2013-07-05", "--to-time", "2013-07-04")
    assert status == 2
    assert "--from-time 2013-07-05 is not before --to-time 2013-07-04" in err


def test_replay_says_in_words_that_a_range_holds_nothing(job):
    report = reported(job("replay", "t", "--from-time", "2014-01-01", "--json"))
    assert (report["records_read"], report["records_written"]) == (0, 0)
    assert "t has no records with a timestamp at or after 2014-01-01" in report["warning"]


def test_consume_counts_what_it_shows(job):
    argv = ("t", "--group", "g", "--show", "3", "--json")
    report = reported(job("consume", *argv))
    assert (report["records_read"], report["records_written"]) == (140, 3)
    report = reported(job("consume", *argv))
    assert (report["records_read"], report["records_written"]) == (0, 0)


class TestProduce:
    def test_counts_the_rows_of_the_source_and_the_records_of_the_log(self, job, root, tmp_path):
        (tmp_path / "in.csv").write_text("n,delay\n1,NA\n2,5\n3,7\n")
        argv = (tmp_path / "in.csv", "--topic", "new", "--partitions", "1", "--json")
        report = reported(job("produce", *argv, "--source-option", "nullValue=NA"))
        assert (report["records_read"], report["records_written"]) == (3, 3)
        (batch,) = log_of(root, "new").scan(0)
        assert batch.records["value"].to_pylist()[1] == b'{"n":2,"delay":5}'

    def test_says_in_words_that_the_source_is_empty(self, job, tmp_path):
        (tmp_path / "in.csv").write_text("n\n")
        report = reported(job("produce", tmp_path / "in.csv", "--topic", "t", "--json"))
        assert report["warning"] == f"no record was written, because {tmp_path}/in.csv has no rows"

    @pytest.mark.parametrize(
        ("arguments", "status", "said"),
        [
            (["missing.csv"], 1, "PATH_NOT_FOUND"),
            (["in.csv", "--key", "nn"], 2, "the source has no column 'nn'"),
            (["in.csv", "--timestamp", "at"], 1, "noon"),
            (["in.csv", "--format", "parquet"], 1, "in.csv"),
            (["in.csv", "--topic-config", "retention.mss=1"], 2, "did you mean 'retention.ms'"),
        ],
        ids=["file", "column", "time", "format", "config"],
    )
    def test_from_a_wrong_source_leaves_no_topic(
        self, job, root, tmp_path, arguments, status, said
    ):
        (tmp_path / "in.csv").write_text("n,at\n1,noon\n")
        found, _, err = job(
            "produce",
            tmp_path / arguments[0],
            *arguments[1:],
            "--topic",
            "new",
            "--partitions",
            "2",
        )
        assert (found, said in err) == (status, True), err
        assert Admin(root).list_topics() == ["t"]

    def test_that_fails_later_says_what_it_created(self, job, root, tmp_path):
        lines = [f"{n},2013-07-04\n" for n in range(2000)]
        (tmp_path / "in.csv").write_text("n,at\n" + "".join(lines) + "2001,noon\n")
        argv = (tmp_path / "in.csv", "--timestamp", "at", "--source-option", "inferSchema=false")
        status, _, err = job("produce", *argv, "--topic", "new", "--partitions", "2")
        assert status == 1
        assert f"To delete it: spark-log topics delete new --root {root}" in err
        assert Admin(root).list_topics() == ["new", "t"]


def _values(*values):
    from tests.record.samples import record_batch, row

    return record_batch([row(value) for value in values])
