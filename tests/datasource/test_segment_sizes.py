"""Sizes of segments by which tasks get about equal work, where some segments are Parquet."""

import json
from pathlib import Path
from unittest import mock

import pytest

from spark_log import Admin, ConfigResource
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.log import PartitionDirectory
from tests.datasource.reading import create, fill, log_of, plan, ranges
from tests.topic_read.topics import clean

COLD, HOT = 20_000, 10_000
"""Records that are Parquet, and records of the log behind them."""


@pytest.fixture(params=["none", "zstd"])
def root(request, tmp_path):
    """A root with a partition whose first two thirds are Parquet.

    The parameter is the compression of the others.
    """
    url = str(tmp_path / "root")
    create(url, "t", 1, **{"retention.ms": "-1", "compression.type": request.param})
    fill(url, "t", 0, range(COLD))
    Admin(url).alter_configs([ConfigResource("TOPIC", "t", {"table.format": "delta"})])
    clean(url)
    fill(url, "t", 0, range(COLD, COLD + HOT), segments=2)
    return url


def sizes(splits):
    return [end - start for _, start, end in ranges(splits)]


def test_records_of_both_kinds_weigh_about_the_same(root):
    cold, *hot = (each.file.size_bytes for each in log_of(root).observe().live.segments)
    assert cold / COLD < 0.1 * sum(hot) / HOT, "the kinds differ too little to show anything"
    found = sizes(plan(root, minPartitions="6"))
    assert sum(found) == COLD + HOT
    assert max(found) <= 1.5 * (COLD + HOT) / 6


def test_one_look_for_each_partition(root):
    with mock.patch.object(
        PartitionDirectory, "open", autospec=True, side_effect=PartitionDirectory.open
    ) as opened:
        plan(root, minPartitions="6")
    assert sum(call.args[1].is_parquet for call in opened.call_args_list) == 1


def test_no_look_if_all_is_of_one_kind(root):
    with mock.patch.object(OffsetReader, "row_statistics", return_value={}) as asked:
        plan(root, minPartitions="4", endingOffsets=json.dumps({"t": {"0": COLD}}))
        plan(root, minPartitions="4", startingOffsets=json.dumps({"t": {"0": COLD}}))
    assert [call.args[0] for call in asked.call_args_list] == [{}, {}]


def test_a_file_that_was_replaced_since_the_listing_fails_no_plan(root):
    log = log_of(root)
    (parquet, *_) = log.observe().live.segments
    observe = OffsetReader.views

    def observe_and_replace(reader, partitions):
        views = observe(reader, partitions)
        Path(root, parquet.file.path).unlink(missing_ok=True)
        return views

    with mock.patch.object(OffsetReader, "views", autospec=True, side_effect=observe_and_replace):
        assert sum(sizes(plan(root, minPartitions="6"))) == COLD + HOT
