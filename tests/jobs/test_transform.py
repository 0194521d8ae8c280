"""``jobs/transform.py``: what it writes and counts, and what it does when it has lost its place.

The jobs run in this process, in one session.
"""

import sys

import pytest

from spark_log import Admin, NewTopic, Producer
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.errors import ProducerFencedError
from spark_log.jobs.group import JobTransactions
from spark_log.testing.spark import spark
from spark_log.transaction import TransactionStateLog
from tests.datasource.reading import create, fill, log_of
from tests.jobs.conftest import reported
from tests.producer.support import committed
from tests.transactions import TransactionWriter

__all__ = ["spark"]

FUNCTIONS = """
from pyspark.sql import functions as F

calls = []


def doubled(records):
    calls.append(records.columns)
    number = F.col("value").cast("string").cast("int")
    return records.select("key", (2 * number).cast("string").alias("value"), "timestamp")


def none(records):
    return records.where("false")


def not_a_frame(records):
    return 3


def without_value(records):
    return records.select("key")


def fails_in_a_task(records):
    bad = "if(partition = 1 and offset = 39, raise_error('bad row'), value) AS value"
    return records.selectExpr(bad)
"""

GROUP = ("--group", "g", "--to", "out", "--json")
DOUBLED = ("--transform", "transform_functions:doubled")


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A topic of two partitions with 100 and 40 records, and the topic ``out``."""
    (tmp_path / "transform_functions.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "transform_functions", raising=False)
    root = str(tmp_path / "root")
    create(root, "t", 2)
    fill(root, "t", 0, range(100), segments=2)
    fill(root, "t", 1, range(100, 140))
    Admin(root).create_topics([NewTopic("out", num_partitions=3)])
    return root


def found(root, topic="out"):
    """Return the numbers that readers of committed records see."""
    return sorted(int(each) for those in committed(root, topic).values() for each in those)


def offsets(root):
    return {tp.partition: at.offset for tp, at in OffsetsTable(Cluster(root)).fetch("g").items()}


def state_of(root, transactional_id):
    cluster = Cluster(root)
    return TransactionStateLog.view(cluster.store, transactional_id, cluster.clock).state


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
class TestAJob:
    def test_writes_the_results_and_commits_the_offsets_in_one_transaction(self, job, root):
        report = reported(job("transform", "t", *GROUP, *DOUBLED, "--transactional-id", "x"))
        assert (report["records_read"], report["records_written"]) == (140, 140)
        assert report["transactional_id"] == "x"
        assert found(root) == [2 * each for each in range(140)]
        assert offsets(root) == {0: 100, 1: 40}
        state = state_of(root, "x")
        assert (state.state, state.transaction) == ("CompleteCommit", 1)
        assert state.decision is not None
        assert {(each.partition, each.offset) for each in state.decision.offsets} == {
            (0, 100),
            (1, 40),
        }

    @pytest.mark.long
    def test_reads_each_record_once_in_many_batches_and_runs(self, job, root):
        argv = ("t", *GROUP, *DOUBLED, "--transactional-id", "x", "--batch-records", 60)
        report = reported(job("transform", *argv))
        assert (report["records_read"], report["records_written"]) == (140, 140)
        fill(root, "t", 1, range(140, 150))
        report = reported(job("transform", *argv))
        assert (report["records_read"], report["records_written"]) == (10, 10)
        report = reported(job("transform", *argv))
        assert (report["records_read"], report["records_written"]) == (0, 0)
        assert found(root) == [2 * each for each in range(150)]
        assert state_of(root, "x").transaction > 3

    def test_reads_committed_records_only(self, job, root):
        writer = TransactionWriter(log_of(root, "t", 1))
        writer.send(b"1000")
        writer.abort()
        writer.send(b"1001")
        report = reported(job("transform", "t", *GROUP, *DOUBLED))
        assert report["records_read"] == 140
        writer.commit()
        report = reported(job("transform", "t", *GROUP, *DOUBLED))
        assert report["records_read"] == 1
        assert found(root) == [2 * each for each in [*range(140), 1001]]

    def test_moves_on_over_records_that_give_no_result(self, job, root):
        report = reported(job("transform", "t", *GROUP, "--transform", "transform_functions:none"))
        assert (report["records_read"], report["records_written"]) == (140, 0)
        assert offsets(root) == {0: 100, 1: 40}

    @pytest.mark.long
    def test_hands_headers_to_the_function_if_it_is_told_to(self, job, root):
        import transform_functions  # type: ignore[import-not-found]

        reported(job("transform", "t", *GROUP, *DOUBLED, "--headers", "--batch-records", 100))
        assert {"headers" in columns for columns in transform_functions.calls} == {True}

    @pytest.mark.parametrize(
        ("function", "status", "said"),
        [
            ("not_a_frame", 2, "returned int, expected a DataFrame"),
            ("without_value", 2, "value"),
            ("fails_in_a_task", 1, "bad row"),
        ],
    )
    def test_that_fails_leaves_nothing_to_read_and_its_transaction_is_aborted(
        self, job, root, function, status, said
    ):
        argv = ("--transform", f"transform_functions:{function}", "--transactional-id", "x")
        ended, _, err = job("transform", "t", *GROUP, *argv)
        assert (ended, said in err) == (status, True), err
        assert found(root) == []
        assert set(offsets(root).values()) == {0}
        assert state_of(root, "x").state in ("Empty", "CompleteAbort")

    def test_goes_on_after_a_process_that_died_with_its_transactional_id(self, job, root):
        with Producer(root, transactional_id="g-a") as dead:
            dead.init_transactions()
            dead.begin_transaction()
            dead.send("out", b"1").result(60)
            argv = ("--consumer-props", "group.instance.id=a")
            report = reported(job("transform", "t", *GROUP, *DOUBLED, *argv))
            assert report["transactional_id"] == "g-a"
            assert found(root) == [2 * each for each in range(140)]
            with pytest.raises(ProducerFencedError):
                dead.commit_transaction()


class TestMistakesAreOneLineBeforeAnythingIsWritten:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ([*DOUBLED, "--to", "nowhere"], "there is no topic 'nowhere'"),
            ([*DOUBLED, "--to", "t"], "--to t is also read"),
            ([*DOUBLED, "--transaction-timeout", "900001"], "transaction.max.timeout.ms"),
            ([*DOUBLED, "--consumer-props", "group.id=h"], "group.id"),
            ([*DOUBLED, "--consumer-props", "isolation.level=read_committed"], "does not apply"),
            (["--transform", "transform_functions:tripled"], "has no attribute 'tripled'"),
            (["--transform", "nonsense"], "expected MODULE:FUNCTION"),
            ([], "--transform"),
        ],
    )
    def test_in_options(self, job, root, arguments, says):
        status, _, err = job("transform", "t", *GROUP, *arguments)
        assert (status, err.count("\n")) == (2, 1), err
        assert says in err
        self.assert_nothing_is_written(root)

    def test_about_the_topics_to_read(self, job, root):
        status, _, err = job("transform", "t", "tt", *GROUP, *DOUBLED)
        assert (status, err) == (
            2,
            "transform.py: error: there is no topic 'tt'; did you mean t?\n",
        )
        self.assert_nothing_is_written(root)

    @staticmethod
    def assert_nothing_is_written(root):
        cluster = Cluster(root)
        assert offsets(root) == {}
        assert TransactionStateLog.list_names(cluster.store, cluster.clock) == []


def test_with_nothing_to_do_no_java_is_started(job, root, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    Admin(root).create_topics([NewTopic("empty")])
    assert job("transform", "empty", *GROUP, *DOUBLED)[0] == 0


def test_a_batch_of_a_job_that_was_fenced_cannot_begin(root):
    cluster = Cluster(root)
    old = JobTransactions(cluster, "x", 60_000)
    old.begin()
    JobTransactions(cluster, "x", 60_000)
    with pytest.raises(ProducerFencedError):
        old.begin()
