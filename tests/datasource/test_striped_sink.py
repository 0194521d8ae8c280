"""Writes of Spark tasks to striped topics: few objects, no record twice, none lost."""

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from spark_log import Admin, NewTopic, NotRepeatableError, StorageError
from spark_log.errors import UnknownOutcomeError
from spark_log.log import PartitionLog, stripe
from spark_log.log.stripe import group_commit
from spark_log.log.stripe.stripe import Stripe
from spark_log.storage.local import LocalStore
from tests.datasource.sink_support import attempt, committed, numbers, rows, task
from tests.datasource.test_sink_attempts import KilledError
from tests.datasource.test_transaction_attempts import commit, write
from tests.store_calls import counted_calls

PARTITIONS = 40


@pytest.fixture
def root(tmp_path):
    """A root with the topic ``t``: 40 partitions in two stripes."""
    url = str(tmp_path / "root")
    configs = {"stripes": 2, "flush.on.append": "false"}
    Admin(url).create_topics([NewTopic("t", PARTITIONS, topic_configs=configs)])
    return url


@pytest.fixture
def small_objects(monkeypatch):
    """Let an object have at most 64 KiB of records."""
    monkeypatch.setattr(group_commit, "MAX_GROUP_BYTES", 65_536)
    monkeypatch.setattr(stripe, "MAX_GROUP_BYTES", 65_536, raising=False)


def objects(root):
    return sorted(Path(root).glob("t.*/__stripes/*/*.stripe"))


def to_all(count=3, padding=0):
    """Return rows for all partitions."""
    return [
        rows(range(100 * number, 100 * number + count), number, padding)
        for number in range(PARTITIONS)
    ]


def expected(count=3):
    return [list(range(100 * number, 100 * number + count)) for number in range(PARTITIONS)]


def die_after(monkeypatch, appends):
    """Let a process die after a number of appends to stripes."""
    append_segments = Stripe.append_segments
    left = iter(range(appends))

    def dying(self, segments):
        if next(left, None) is None:
            raise KilledError
        return append_segments(self, segments)

    monkeypatch.setattr(Stripe, "append_segments", dying)


class TestObjects:
    def test_a_task_puts_one_for_the_partitions_of_a_stripe(self, root):
        written = attempt(root, to_all())
        assert len(objects(root)) == 2
        assert numbers(root) == expected()
        assert {(each.first_offset, each.last_offset) for each in written.results.values()} == {
            (0, 2)
        }

    def test_an_object_has_no_more_records_than_fit(self, root, small_objects):
        attempt(root, to_all(count=10, padding=1000))  # 20 partitions of 10 KiB in each stripe
        assert 2 * 4 <= len(objects(root)) <= 2 * 5
        assert numbers(root) == expected(10)

    def test_many_records_of_a_partition_are_cut_into_segments_of_this_size(
        self, root, small_objects
    ):
        attempt(root, [rows(range(first, first + 10), 1, 1000) for first in range(0, 200, 10)])
        sizes = [path.stat().st_size for path in objects(root)]
        assert 4 <= len(sizes) <= 5
        assert max(sizes) < 80_000
        assert numbers(root)[1] == list(range(200))

    def test_what_a_task_appends_is_not_read_again(self, root):
        attempt(root, to_all())
        with counted_calls() as calls:
            attempt(root, to_all(), batch_id=1)
        opened = [path for name, path in calls if "/t-" in path]
        assert not opened
        assert len(objects(root)) == 4


class TestAttempts:
    def test_a_repeated_one_appends_nothing(self, root):
        attempt(root, to_all())
        again = attempt(root, to_all())
        assert numbers(root) == expected()
        assert len(objects(root)) == 2
        assert {each.repeated for each in again.results.values()} == {3}
        assert {each.first_offset for each in again.results.values()} == {0}

    @pytest.mark.parametrize("appended", [0, 1, 3])
    def test_one_that_died_between_objects_is_completed(
        self, root, monkeypatch, small_objects, appended
    ):
        with monkeypatch.context() as patch:
            die_after(patch, appended)
            with pytest.raises(KilledError):
                attempt(root, to_all(10, 1000))
        found = sum(map(len, numbers(root)))
        assert (found > 0) == (appended > 0)
        again = attempt(root, to_all(10, 1000))
        assert numbers(root) == expected(10)
        assert sum(each.repeated for each in again.results.values()) == found

    @pytest.mark.parametrize("cut", [7, 50, 300])
    def test_one_that_cuts_segments_elsewhere_appends_the_rest(
        self, root, monkeypatch, small_objects, cut
    ):
        def batches(size):
            return [rows(range(at, min(at + size, 300)), 1, 1000) for at in range(0, 300, size)]

        with monkeypatch.context() as patch:
            die_after(patch, 2)
            with pytest.raises(KilledError):
                attempt(root, batches(100))
        found = len(numbers(root)[1])
        assert 0 < found < 300
        (result,) = attempt(root, batches(cut)).results.values()
        assert numbers(root)[1] == list(range(300))
        assert (result.records, result.repeated) == (300, found)

    def test_two_at_the_same_time_append_each_record_once(self, root, small_objects):
        with task(root) as first, task(root) as second:
            for writer in (first, second):
                for batch in to_all(10, 1000):
                    writer.add(batch)
            ends = []
            threads = [
                threading.Thread(target=lambda writer=writer: ends.append(writer.commit()))
                for writer in (first, second)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        assert numbers(root) == expected(10)
        repeated = [each.repeated for end in ends for each in end.results.values()]
        assert sum(repeated) == 10 * PARTITIONS

    def test_one_with_other_rows_is_refused(self, root):
        attempt(root, to_all())
        with pytest.raises(NotRepeatableError):
            attempt(root, [rows([7, 8, 9], 5)])
        assert numbers(root) == expected()

    def test_more_rows_than_at_first_are_appended_behind_the_first(self, root):
        attempt(root, to_all(3))
        again = attempt(root, to_all(5))
        assert numbers(root) == expected(5)
        assert {each.repeated for each in again.results.values()} == {3}

    def test_without_idempotence_every_one_appends(self, root):
        for _ in range(2):
            attempt(root, [rows([1], 3)], idempotent="false")
        assert numbers(root)[3] == [1, 1]


def test_a_transaction_is_visible_in_all_partitions_with_its_commit(root):
    first, second = (write(root, to_all(), number=number) for number in range(2))
    assert len(objects(root)) == 4
    assert committed(root) == [[]] * PARTITIONS
    commit(root, first, second)
    assert committed(root) == [each * 2 for each in expected()]


class TestFailures:
    def test_a_lost_answer_is_looked_up(self, root, monkeypatch):
        put = LocalStore.put_if_absent
        lost: list[str] = []

        def losing(self, path, content, **options):
            put(self, path, content, **options)
            if path.endswith(".stripe") and not lost:
                lost.append(path)
                raise UnknownOutcomeError("no answer", path=path)

        monkeypatch.setattr(LocalStore, "put_if_absent", losing)
        attempt(root, to_all())
        assert lost
        assert numbers(root) == expected()
        assert len(objects(root)) == 2

    def test_a_failed_append_leaves_nothing_staged(self, root, monkeypatch, tmp_path):
        def failing(self, path, content, **options):
            raise StorageError("refused", path=path)

        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "put_if_absent", failing)
            with pytest.raises(StorageError):
                attempt(root, to_all())
        assert numbers(root) == [[]] * PARTITIONS
        assert not list(tmp_path.rglob("*.tmp"))
        attempt(root, to_all())
        assert numbers(root) == expected()


def test_a_topic_without_stripes_beside_them_has_segments_of_its_own(root, monkeypatch):
    Admin(root).create_topics([NewTopic("u", 2)])
    appended = []
    append_segment = PartitionLog.append_segment

    def noted(self, segment, **options):
        appended.append(self.directory)
        return append_segment(self, segment, **options)

    monkeypatch.setattr(PartitionLog, "append_segment", noted)
    with task(root, topic=None) as writer:
        for topic, batch in (("t", rows([1], 0)), ("u", rows([2], 1)), ("t", rows([3], 2))):
            writer.add(batch.append_column("topic", pa.array([topic] * batch.num_rows)))
        writer.commit()
    assert numbers(root, "u") == [[], [2]]
    assert numbers(root)[:3] == [[1], [], [3]]
    assert len(appended) == 1
    assert len(objects(root)) == 1
