"""Lag in the progress of a query."""

import json
from types import SimpleNamespace

from spark_log import TopicPartition
from spark_log.datasource.stream.lag import PartitionLag, lag_of, latest_document, metrics_of
from spark_log.datasource.stream.stream_offset import StreamOffset

P0, P1, P12 = (TopicPartition("t", number) for number in (0, 1, 12))
LATEST = StreamOffset({P0: 120, P1: 80, P12: 9}, {"t": "BAmGwfbUQVSsLzdzBSFxhA"})
END = StreamOffset({P0: 100, P1: 80, P12: 4}, LATEST.topic_ids)


def progress(end, latest):
    return SimpleNamespace(endOffset=json.dumps(end), latestOffset=json.dumps(latest))


def test_lag_is_read_from_what_the_progress_shows():
    shown = progress(END.to_document(), latest_document(LATEST, {P0: 1500, P12: 20}, {}))
    assert lag_of(shown) == {
        P0: PartitionLag(20, 1500),
        P1: PartitionLag(0, 0),
        P12: PartitionLag(5, 20),
    }


def test_is_summed_up_under_the_names_of_the_connectors_metrics():
    shown = progress(END.to_document(), latest_document(LATEST, {P0: 1500, P12: 20}, {}))
    assert metrics_of(shown) == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "20",
        "avgOffsetsBehindLatest": str(25 / 3),
    }
    assert metrics_of(SimpleNamespace(endOffset=None, latestOffset=None)) == {}


def test_in_time_is_not_known_where_it_was_not_looked_at():
    shown = progress(END.to_document(), latest_document(LATEST, {P0: 1500}, {}))
    assert lag_of(shown)[P12] == PartitionLag(5, None)


def test_in_time_is_noted_where_no_reader_of_offsets_stumbles_over_it():
    document = latest_document(LATEST, {P0: 1500, P12: 20}, {})
    assert {name for name, partitions in document.items() if partitions} == {"t"}
    assert StreamOffset.from_document(document) == LATEST


def test_counts_what_can_be_read_and_tells_what_was_deleted_unread():
    document = latest_document(LATEST, {P0: 1500}, {P0: 115, P12: 9})
    assert StreamOffset.from_document(document) == LATEST
    shown = progress(END.to_document(), document)
    assert lag_of(shown) == {
        P0: PartitionLag(5, 1500, 15),
        P1: PartitionLag(0, 0),
        P12: PartitionLag(0, 0, 5),
    }
    assert metrics_of(shown)["maxOffsetsBehindLatest"] == "5"


def test_offsets_of_a_deleted_topic_are_not_those_of_the_topic_that_has_its_name_now():
    """It came back smaller: with fewer partitions and records than were read of the first one."""
    latest = StreamOffset({P0: 30}, {"t": "7sYJIPNEQJG7V6uYl0hVvQ"})
    shown = progress(END.to_document(), latest_document(latest, {}, {}))
    assert lag_of(shown) == {P0: PartitionLag(30, None)}


def test_is_never_negative():
    behind = StreamOffset({P0: 90, P1: 80}, END.topic_ids)
    shown = progress(END.to_document(), latest_document(behind, {}, {}))
    assert lag_of(shown) == {P0: PartitionLag(0, 0), P1: PartitionLag(0, 0)}


def test_of_the_connectors_own_progress_is_read_too():
    shown = SimpleNamespace(endOffset='{"t":{"0":5}}', latestOffset='{"t":{"0":9}}')
    assert lag_of(shown) == {P0: PartitionLag(4, None)}


def test_lag_is_empty_where_nothing_is_told():
    assert lag_of(SimpleNamespace(endOffset="", latestOffset="")) == {}
    assert lag_of(SimpleNamespace(endOffset="null", latestOffset="null")) == {}
    assert lag_of(SimpleNamespace(endOffset=None, latestOffset=None)) == {}


def test_lag_of_another_source_is_empty():
    shown = SimpleNamespace(endOffset='{"reservoirVersion":3}', latestOffset="17")
    assert lag_of(shown) == {}
    shown = SimpleNamespace(endOffset='{"version":3}', latestOffset='{"version":4}')
    assert lag_of(shown) == {}
