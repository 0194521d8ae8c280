"""The choice of partitions depends only on the records and their order."""

import numpy as np
import pyarrow as pa
import pytest

from spark_log import InvalidPartitionsError
from spark_log.datasource.write.partition_chooser import PartitionChooser
from spark_log.record.murmur2 import partition_for_keys


def choose(keys, explicit=None, *, cut=10_000, partitions=4, first=0):
    """Return the partitions of all keys, chosen in batches of a given size."""
    chooser = PartitionChooser("t", partitions, first)
    keys = pa.array(keys, pa.binary())
    column = None if explicit is None else pa.array(explicit, pa.int32())
    found = [
        chooser.choose(keys.slice(start, cut), None if column is None else column.slice(start, cut))
        for start in range(0, len(keys), cut)
    ]
    return np.concatenate(found).tolist()


def test_records_without_a_key_go_on_to_the_next_partition_after_ten_thousand():
    found = choose([None] * 25_000, first=3)
    assert found == [3] * 10_000 + [0] * 10_000 + [1] * 5_000


@pytest.mark.parametrize("cut", [1, 777, 10_000, 30_000])
def test_how_spark_cuts_batches_changes_nothing(cut):
    keys = [None if number % 3 else b"%d" % number for number in range(22_000)]
    explicit = [number % 4 if number % 5 == 0 else None for number in range(22_000)]
    if cut == 1:
        keys, explicit = keys[:500], explicit[:500]

    assert choose(keys, explicit, cut=cut) == choose(keys, explicit, cut=len(keys))


def test_the_column_wins_then_the_key():
    keys = [b"21", b"21", None, None]
    by_key = int(partition_for_keys(pa.array([b"21"], pa.binary()), 4)[0])
    other = (by_key + 1) % 4

    assert choose(keys, [other, None, 2, None], first=1) == [other, by_key, 2, 1]


@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_partition_out_of_range_is_refused(wrong):
    with pytest.raises(InvalidPartitionsError, match=f"contains {wrong}, but topic 't' has 4"):
        choose([None, b"k"], [0, wrong])
