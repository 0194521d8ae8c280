"""Reprocessed records are in the result once, wherever a run is killed."""

import json

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from spark_log import Admin, ConfigResource, NewTopic
from spark_log.cluster import Cluster
from spark_log.datasource.options.offsets import format_offsets
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.errors import InvalidOptionError
from spark_log.jobs.reprocessing import DeltaTarget, Reprocessing, TopicTarget
from spark_log.util.clock import SYSTEM_CLOCK
from tests.datasource.reading import create, fill, log_of
from tests.log.support import ShiftedClock

pytestmark = pytest.mark.spark


class KilledError(Exception):
    """Stands for a killed process."""


@pytest.fixture
def root(tmp_path):
    url = str(tmp_path / "root")
    create(url, "t", 2)
    fill(url, "t", 0, range(100), segments=4)
    fill(url, "t", 1, range(100, 140))
    Admin(url).create_topics([NewTopic("results", num_partitions=2)])
    return url


@pytest.fixture
def delta(tmp_path):
    return DeltaTarget(str(tmp_path / "table"), {})


def a_run(root, target, *, name="r", settings=None, **options):
    read = {"path": root, "subscribe": "t"} | options
    settings = {"--transform": "m:f"} if settings is None else settings
    parsed = parse_read_options(read, is_stream=False)
    return Reprocessing(target, name, settings, parsed)


def steps(run, spark, root, most=50):
    """Run steps until the run is complete; yields the run after each step."""

    def results_of(starts, ends):
        read = spark.read.format("spark_log").option("path", root).option("subscribe", "t")
        read = read.option("startingOffsets", format_offsets(starts))
        records = read.option("endingOffsets", format_offsets(ends)).load()
        return records.select("key", F.concat(F.lit("<"), "value", F.lit(">")).alias("value"))

    while not run.progress.is_done:
        run.run_step(results_of, most)
        yield run


def in_table(target):
    values = DeltaTable(target.path).to_pyarrow_table()["value"].to_pylist()
    return sorted(bytes(value, "ascii") if isinstance(value, str) else value for value in values)


def in_topic(root):
    found = []
    for number in range(2):
        for batch in log_of(root, "results", number).scan(0):
            found += batch.records.column("value").to_pylist()
    return sorted(found)


def expected(count=140):
    return sorted(b"<%d>" % number for number in range(count))


class TestIntoADeltaTable:
    def test_each_step_is_a_commit_that_tells_its_offsets(self, spark, root, delta):
        run = a_run(root, delta)
        assert len(list(steps(run, spark, root))) == 3
        assert in_table(delta) == expected()
        told = DeltaTable(delta.path).history(1)[0]["userMetadata"]
        kept = json.loads(told)["spark_log.reprocess"]
        assert json.loads(kept["reached"]) == {"t": {"0": 100, "1": 40}}

    @pytest.mark.long
    def test_it_goes_on_behind_the_last_step_and_ends_where_it_was_to_end(self, spark, root, delta):
        next(steps(a_run(root, delta), spark, root))
        fill(root, "t", 1, range(1000, 1010))
        again = a_run(root, delta)
        assert again.is_resumed
        assert again.progress.step == 0
        list(steps(again, spark, root))
        assert in_table(delta) == expected()

    def test_a_step_whose_end_was_not_seen_is_not_done_twice(self, spark, root, delta, monkeypatch):
        run = a_run(root, delta)
        monkeypatch.setattr(DeltaTarget, "progress", dying)
        with pytest.raises(KilledError):
            next(steps(run, spark, root))
        monkeypatch.undo()
        list(steps(a_run(root, delta), spark, root))
        assert in_table(delta) == expected()

    def test_of_two_runs_of_one_name_at_once_one_is_told(self, spark, root, delta):
        first, second = a_run(root, delta), a_run(root, delta)
        next(steps(first, spark, root))
        with pytest.raises(InvalidOptionError, match="another process runs 'r'"):
            next(steps(second, spark, root))
        list(steps(first, spark, root))
        assert in_table(delta) == expected()

    @pytest.mark.long
    def test_two_names_do_not_know_of_each_other(self, spark, root, delta):
        list(steps(a_run(root, delta, name="a"), spark, root, most=None))
        list(steps(a_run(root, delta, name="b"), spark, root, most=None))
        assert in_table(delta) == sorted(expected() * 2)

    @pytest.mark.long
    def test_steps_without_results_are_steps(self, spark, root, delta):
        run = a_run(root, delta)
        nothing = spark.createDataFrame([], "key binary, value binary")
        run.run_step(lambda starts, ends: nothing, 50)
        assert a_run(root, delta).progress.step == 0

    def test_a_run_is_not_gone_on_with_by_other_settings(self, spark, root, delta):
        next(steps(a_run(root, delta), spark, root))
        with pytest.raises(InvalidOptionError, match="was started with --transform 'm:f'"):
            a_run(root, delta, settings={"--transform": "m:g"})

    def test_progress_that_is_not_told_any_more_is_an_error(self, spark, root, delta, monkeypatch):
        next(steps(a_run(root, delta), spark, root))
        monkeypatch.setattr(DeltaTable, "history", lambda self, limit: [])
        with pytest.raises(InvalidOptionError, match="not in the table's history"):
            a_run(root, delta)


class TestIntoATopic:
    @pytest.fixture
    def target(self, root):
        return TopicTarget(Cluster(root), "results", {"path": root})

    def test_a_step_that_is_written_again_appends_nothing(self, spark, root, target, monkeypatch):
        run = a_run(root, target)
        monkeypatch.setattr(TopicTarget, "_commit", dying)
        with pytest.raises(KilledError):
            next(steps(run, spark, root))
        monkeypatch.undo()
        written = len(in_topic(root))
        assert written > 0
        again = a_run(root, target)
        assert again.progress.step == -1
        list(steps(again, spark, root))
        assert in_topic(root) == expected()

    def test_it_goes_on_behind_the_last_step(self, spark, root, target):
        next(steps(a_run(root, target), spark, root))
        fill(root, "t", 1, range(1000, 1010))
        list(steps(a_run(root, target), spark, root))
        assert in_topic(root) == expected()
        assert a_run(root, target).progress.is_done

    def test_a_run_that_has_rested_for_too_long_is_an_error(self, spark, root, target):
        next(steps(a_run(root, target), spark, root))
        forget_producers_at_once(root)
        target = TopicTarget(Cluster(root), "results", {"path": root})
        with pytest.raises(InvalidOptionError, match=r"producer\.id\.expiration\.ms"):
            a_run(root, target)

    @pytest.mark.parametrize("days", [30, pytest.param(-30, marks=pytest.mark.long)])
    def test_drivers_whose_clocks_are_days_apart_take_turns(self, spark, root, days):
        """The duration of a pause does not depend on the clock of the driver that continues."""
        shifted = Cluster(root, clock=ShiftedClock(SYSTEM_CLOCK, days=days))
        wrong, right = (
            TopicTarget(each, "results", {"path": root}) for each in (shifted, Cluster(root))
        )
        next(steps(a_run(root, wrong), spark, root))
        next(steps(a_run(root, right), spark, root))
        assert a_run(root, wrong).progress.step == 1
        forget_producers_at_once(root)
        for cluster in (shifted, Cluster(root)):
            target = TopicTarget(cluster, "results", {"path": root})
            with pytest.raises(InvalidOptionError, match="was paused for 0 hours"):
                a_run(root, target)


def forget_producers_at_once(root):
    expiration = {"producer.id.expiration.ms": "1"}
    Admin(root).alter_configs([ConfigResource("topic", "results", expiration)])


def dying(*args, **kwargs):
    raise KilledError
