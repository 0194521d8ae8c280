"""Partitions, log end offsets, and the offsets that options resolve to."""

import re

import pytest

from spark_log import (
    Admin,
    InvalidOptionError,
    NewTopic,
    RootNotFoundError,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.storage.local import LocalStore
from tests.datasource.reading import (
    BASE_MS,
    add_partition,
    create,
    fill,
    log_of,
    options_of,
    records,
    retain_from,
)


@pytest.fixture
def root(tmp_path):
    url = str(tmp_path / "root")
    create(url, "t", 3)
    return url


def reader(root, *, is_stream=False, **options):
    return OffsetReader(options_of(root, is_stream=is_stream, **options))


def by_number(offsets):
    """Return offsets of one topic by partition number."""
    return {tp.partition: offset for tp, offset in offsets.items()}


class TestPartitions:
    def test_of_subscribed_topics_in_order(self, root):
        create(root, "a", 2)
        assert [str(tp) for tp in reader(root, subscribe="t,a").partitions()] == [
            "a-0",
            "a-1",
            "t-0",
            "t-1",
            "t-2",
        ]

    def test_assigned_ones_alone(self, root):
        found = reader(root, assign='{"t":[2,0]}').partitions()
        assert [tp.partition for tp in found] == [0, 2]

    def test_of_topics_in_whose_name_a_pattern_is_found(self, root):
        for name in ("flights", "flights-2", "my-flights", "weather"):
            create(root, name)
        found = {tp.topic for tp in reader(root, subscribePattern="flights").partitions()}
        assert found == {"flights", "flights-2", "my-flights"}
        found = {tp.topic for tp in reader(root, subscribePattern="^flights$").partitions()}
        assert found == {"flights"}

    def test_a_pattern_that_nothing_matches_finds_nothing(self, root):
        assert reader(root, subscribePattern="nothing").partitions() == []

    def test_new_ones_are_found_while_a_query_runs(self, root):
        looking = reader(root, subscribePattern="^(t|u)$")
        assert len(looking.partitions()) == 3
        add_partition(root, "t")
        create(root, "u")
        assert [str(tp) for tp in looking.partitions()] == ["t-0", "t-1", "t-2", "t-3", "u-0"]
        assert set(looking.topic_ids()) == {"t", "u"}

    def test_unknown_ones_are_errors(self, root):
        with pytest.raises(UnknownTopicOrPartitionError, match="did you mean t"):
            reader(root, subscribe="tt").partitions()
        with pytest.raises(
            UnknownTopicOrPartitionError, match="names partition 7, but topic 't' has 3"
        ):
            reader(root, assign='{"t":[0,7]}').partitions()

    def test_without_a_root_there_are_none(self, tmp_path):
        with pytest.raises(RootNotFoundError):
            reader(str(tmp_path / "nowhere"))


class TestOffsetsNow:
    def test_of_a_log_that_grows_and_whose_start_moves(self, root):
        looking = reader(root)
        wanted = looking.partitions()
        assert set(looking.latest(wanted).values()) == {0}

        fill(root, "t", 1, range(10), segments=2)
        assert by_number(looking.latest(wanted)) == {0: 0, 1: 10, 2: 0}
        assert by_number(looking.earliest(wanted)) == {0: 0, 1: 0, 2: 0}

        retain_from(root, 5, 5, partition=1)
        fill(root, "t", 1, range(10, 13))
        assert by_number(looking.earliest(wanted)) == {0: 0, 1: 5, 2: 0}
        assert by_number(looking.latest(wanted)) == {0: 0, 1: 13, 2: 0}

    def test_the_end_costs_one_look_for_a_name_once_it_is_known(self, root, monkeypatch):
        fill(root, "t", 0, range(10), segments=3)
        looking = reader(root)
        wanted = looking.partitions()
        looking.latest(wanted)
        calls = []
        for name in ("list", "open_buffer"):
            real = getattr(LocalStore, name)

            def spied(self, path, *args, _real=real, _name=name, **kwargs):
                calls.append((_name, path))
                return _real(self, path, *args, **kwargs)

            monkeypatch.setattr(LocalStore, name, spied)

        assert by_number(looking.latest(wanted)) == {0: 10, 1: 0, 2: 0}
        assert [name for name, _ in calls] == ["open_buffer"] * 3

    def test_partitions_that_do_not_exist_are_left_out(self, root):
        looking = reader(root)
        gone = TopicPartition("t", 9), TopicPartition("gone", 0)
        assert looking.latest([*gone, TopicPartition("t", 0)]) == {TopicPartition("t", 0): 0}
        assert looking.earliest(gone) == {}

    def test_a_topic_created_anew_is_another_log(self, root):
        fill(root, "t", 0, range(10))
        looking = reader(root)
        before = looking.topic_ids()
        assert by_number(looking.latest(looking.partitions()))[0] == 10
        assert looking.view(TopicPartition("t", 0)).log_end_offset == 10

        Admin(root).delete_topics(["t"])
        create(root, "t", 3)

        wanted = looking.partitions()
        assert looking.view(TopicPartition("t", 0)).log_end_offset == 0
        assert by_number(looking.latest(wanted))[0] == 0
        assert looking.topic_ids() != before

    def test_a_view_is_looked_at_again_where_it_does_not_reach_far_enough(self, root):
        looking = reader(root)
        tp = TopicPartition("t", 0)
        first = looking.view(tp)
        fill(root, "t", 0, range(4))
        assert looking.view(tp) is first
        assert looking.view(tp, 4).log_end_offset == 4

    def test_many_partitions_are_looked_at_at_once_where_each_look_waits(self, root, monkeypatch):
        """Every request waits for all the others: one after the other would never end."""
        import threading

        everybody = threading.Barrier(3, timeout=30)
        real = LocalStore.list

        def waiting(self, directory, start_after=None):
            if re.search(r"/t-\d$", directory):
                everybody.wait()
            return real(self, directory, start_after)

        monkeypatch.setattr(LocalStore, "is_mapped", False)
        monkeypatch.setattr(LocalStore, "list", waiting)
        looking = reader(root)
        assert len(looking.earliest(looking.partitions())) == 3


class TestStart:
    def test_is_the_earliest_for_a_batch_and_the_latest_for_a_stream(self, root):
        fill(root, "t", 0, range(10), segments=2)
        retain_from(root, 5, 5)
        assert by_number(reader(root).starting_offsets(is_batch=True)) == {0: 5, 1: 0, 2: 0}
        streaming = reader(root, is_stream=True)
        assert by_number(streaming.starting_offsets(is_batch=False)) == {0: 10, 1: 0, 2: 0}

    def test_offsets_may_be_words_for_some_partitions(self, root):
        fill(root, "t", 0, range(10))
        fill(root, "t", 1, range(10))
        streaming = reader(root, is_stream=True, startingOffsets='{"t":{"0":-2,"1":-1,"2":0}}')
        assert by_number(streaming.starting_offsets(is_batch=False)) == {0: 0, 1: 10, 2: 0}

    def test_offsets_that_were_given_are_not_looked_up(self, root, monkeypatch):
        monkeypatch.setattr(OffsetReader, "_observe", None)
        given = reader(root, startingOffsets='{"t":{"0":7,"1":8,"2":9}}')
        assert by_number(given.starting_offsets(is_batch=True)) == {0: 7, 1: 8, 2: 9}

    @pytest.mark.parametrize(
        ("option", "value", "message"),
        [
            ("startingOffsets", '{"t":{"0":0,"1":0}}', "has no offset for t-2; name every part"),
            (
                "startingOffsets",
                '{"t":{"0":0,"1":0,"2":0,"3":0}}',
                "names t-3, which this query does not read",
            ),
            ("startingOffsetsByTimestamp", '{"t":{"0":0,"1":0}}', "has no time for t-2"),
            (
                "startingOffsetsByTimestamp",
                '{"t":{"0":0,"1":0,"2":0,"3":0}}',
                "names t-3, which this query does not read",
            ),
        ],
    )
    def test_all_partitions_have_to_be_named_and_no_others(self, root, option, value, message):
        with pytest.raises(InvalidOptionError, match=re.escape(message)):
            reader(root, **{option: value}).starting_offsets(is_batch=True)

    def test_a_time_is_the_first_record_at_or_after_it(self, root):
        for number in range(3):
            fill(root, "t", number, range(100), segments=4)
        looking = reader(root, startingTimestamp=str(BASE_MS + 20_001))
        assert by_number(looking.starting_offsets(is_batch=True)) == {0: 21, 1: 21, 2: 21}
        times = f'{{"t":{{"0":{BASE_MS},"1":{BASE_MS + 5000},"2":{BASE_MS + 5001}}}}}'
        looking = reader(root, startingOffsetsByTimestamp=times)
        assert by_number(looking.starting_offsets(is_batch=True)) == {0: 0, 1: 5, 2: 6}

    def test_where_times_go_back_it_is_the_first_in_offset_order(self, root):
        log_of(root).append(records([0, 1, 2, 3], [100, 900, 200, 950]))
        looking = reader(root, assign='{"t":[0]}', startingTimestamp="0")
        assert by_number(looking.starting_offsets(is_batch=True)) == {0: 0}
        log_of(root, partition=1).append(records([0, 1, 2, 3], [1000, 9000, 2000, 9500]))
        looking = reader(root, assign='{"t":[1]}', startingTimestamp="2")
        assert by_number(looking.starting_offsets(is_batch=True)) == {1: 1}

    def test_without_a_record_a_time_is_an_error_that_says_what_helps(self, root):
        fill(root, "t", 0, range(10))
        late = str(BASE_MS + 5000)
        with pytest.raises(InvalidOptionError) as raised:
            reader(root, startingTimestamp=late).starting_offsets(is_batch=True)
        assert f"t-1 has no record at or after {late}" in str(raised.value)
        assert "startingOffsetsByTimestampStrategy=latest" in str(raised.value)

    def test_or_the_end_if_that_is_asked_for(self, root):
        fill(root, "t", 0, range(10))
        fill(root, "t", 1, range(3))
        looking = reader(
            root,
            startingTimestamp=str(BASE_MS + 5000),
            startingOffsetsByTimestampStrategy="latest",
        )
        assert by_number(looking.starting_offsets(is_batch=True)) == {0: 5, 1: 3, 2: 0}


class TestEnd:
    def test_is_the_latest(self, root):
        fill(root, "t", 0, range(10))
        assert by_number(reader(root).ending_offsets()) == {0: 10, 1: 0, 2: 0}

    def test_without_a_record_a_time_is_the_end(self, root):
        fill(root, "t", 0, range(10))
        fill(root, "t", 1, range(3))
        looking = reader(root, endingTimestamp=str(BASE_MS + 5000))
        assert by_number(looking.ending_offsets()) == {0: 5, 1: 3, 2: 0}

    def test_is_of_the_same_look_as_the_start(self, root):
        fill(root, "t", 0, range(10))
        looking = reader(root)
        looking.starting_offsets(is_batch=True)
        fill(root, "t", 0, range(10, 20))
        assert by_number(looking.ending_offsets())[0] == 10


def test_internal_topics_match_no_pattern(root):
    """Metadata and committed offsets are not topics."""
    names = {topic.topic for topic in reader(root, subscribePattern=".*").partitions()}
    assert names == {"t"}
    with pytest.raises(Exception, match="__"):
        Admin(root).create_topics([NewTopic("__consumer_offsets")])


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_offsets_follow_a_topic_to_other_stripes(root, isolation):
    found = reader(root, is_stream=True, subscribe="t", **{"isolation.level": isolation})
    partitions = found.partitions()
    fill(root, "t", 1, range(3))
    ends = [by_number(found.latest(partitions))[1]]
    for count in (2, 4, 0):
        Admin(root).alter_stripes({"t": count})
        fill(root, "t", 1, range(2))
        found.partitions()  # as before each micro-batch
        ends.append(by_number(found.latest(partitions))[1])
        Admin(root).alter_stripes({"t": count + 1})
        ends.append(by_number(found.latest(partitions))[1])  # the metadata are older
        found.partitions()
        ends.append(by_number(found.latest(partitions))[1])
    assert ends == [3, 6, 7, 7, 10, 11, 11, 14, 15, 15]
    assert by_number(found.earliest(partitions)) == {0: 0, 1: 0, 2: 0}
