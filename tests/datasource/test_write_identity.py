"""Derived producer ids are the same in every process and every version."""

from dataclasses import replace

from spark_log.datasource.write.identity import WriteIdentity
from spark_log.metadata import FIRST_DERIVED_ID
from spark_log.record import ProducerAppend

GOLDEN = (6_553_596_233_575_233_637, 6_469_634_093_926_046_750)
STREAM = WriteIdentity("0f5d2d3e-6f2b-4f0e-9d3c-6b1f2a3c4d5e", 7, 3, is_stream=True)


def test_ids_do_not_change_from_version_to_version():
    """A query may crash with one version, and be started again with the next one."""
    assert STREAM.producer_id("AAAAAAAAAAAAAAAAAAAAAA", 2) == GOLDEN[0]
    batch = replace(STREAM, is_stream=False, batch_id=0)
    assert batch.producer_id("AAAAAAAAAAAAAAAAAAAAAA", 2) == GOLDEN[1]


def test_ids_lie_above_those_that_are_handed_out_and_fit_the_batch_header():
    for task in range(1000):
        found = replace(STREAM, task=task).producer_id("id", 0)
        assert FIRST_DERIVED_ID <= found < 2**63
        ProducerAppend(found, STREAM.producer_epoch, 0)


def test_every_part_of_the_identity_counts():
    ids = [
        STREAM.producer_id("id", 0),
        STREAM.producer_id("id", 1),
        STREAM.producer_id("another", 0),
        replace(STREAM, task=4).producer_id("id", 0),
        replace(STREAM, write="another").producer_id("id", 0),
        replace(STREAM, is_stream=False).producer_id("id", 0),
        replace(STREAM, batch_id=7 + 2**15).producer_id("id", 0),
    ]
    assert len(set(ids)) == len(ids)


def test_micro_batches_share_an_id_and_rise_in_epoch():
    later = replace(STREAM, batch_id=8)
    assert later.producer_id("id", 0) == STREAM.producer_id("id", 0)
    assert (STREAM.producer_epoch, later.producer_epoch) == (7, 8)
    assert replace(STREAM, batch_id=2**15 + 1).producer_epoch == 1


def test_parts_that_run_into_each_other_are_told_apart():
    first = replace(STREAM, write="a1", task=1).producer_id("b", 0)
    second = replace(STREAM, write="a", task=11).producer_id("b", 0)
    assert first != second
