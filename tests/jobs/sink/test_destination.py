"""Several jobs add files to one directory at the same time, and no file is lost."""

import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark_log.jobs.sink.destination import Destination, Sink
from tests.waiting import wait_until

pytestmark = pytest.mark.spark


def rows_that_wait(began, go):
    """Return the function of a task that emits a row, and the others when the test allows it."""

    def wait(batches):
        for batch in batches:
            yield batch.slice(0, 1)
            Path(began).touch()
            deadline = time.monotonic() + 120
            while not Path(go).exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            yield batch.slice(1)

    return wait


def test_a_writer_that_ends_first_leaves_alone_what_another_has_staged(spark, tmp_path):
    path, began, go = (str(tmp_path / name) for name in ("out", "began", "go"))
    destination = Destination(Sink.PARQUET, path, 0, binary=True)
    records = spark.sql("SELECT 'k' AS key, 'v' AS value, id FROM range(10)").coalesce(1)
    # Size of the batches that Python emits: the first row has to be emitted before the wait.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1)
    try:
        slow = records.mapInArrow(rows_that_wait(began, go), records.schema)
        thread = threading.Thread(target=destination.write, args=(slow,))
        thread.start()
        wait_until(lambda: Path(began).exists() or not thread.is_alive())
        assert thread.is_alive()
        assert destination.write(records).written == 10
        Path(go).touch()
        thread.join()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert sorted(pq.read_table(path)["id"].to_pylist()) == sorted([*range(10)] * 2)
    assert not (tmp_path / "out/_temporary").exists()
