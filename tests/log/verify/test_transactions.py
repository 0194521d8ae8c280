"""Verification of transactions: markers, what is behind them, and what snapshots say of them."""

from dataclasses import replace

import pytest

from spark_log.log import (
    OpenTransaction,
    TransactionIndex,
)
from spark_log.log.files.file_names import SegmentName, snapshot_name
from spark_log.log.log_start import move_log_start
from spark_log.log.producers.transaction_index import AbortedTransaction
from spark_log.log.rewrite.merger import merge
from spark_log.log.snapshot.snapshot import Snapshot
from spark_log.log.verify.verifier import Verifier
from spark_log.record import EndTransactionMarker, ProducerAppend
from spark_log.record.batch_header import BatchHeader
from spark_log.record.control_record import ControlRecordType
from tests.log.support import DIRECTORY, TOPIC_ID, Part, open_log, put_bytes, segment_bytes
from tests.record.samples import numbered, row

DATA = BatchHeader.TRANSACTIONAL_BIT
COMMIT = DATA | BatchHeader.CONTROL_BIT
ABORT = COMMIT | BatchHeader.ABORT_BIT


@pytest.fixture
def verify(store, clock):
    def run(repair=False):
        found = Verifier(open_log(store, clock=clock), repair=repair).findings()
        return [(str(each.kind), each.message) for each in found if each.is_problem]

    return run


def send(log, producer_id=7, epoch=0):
    producer = ProducerAppend(producer_id, epoch, 0, is_transactional=True)
    log.append(numbered(0, 2), producer=producer)


def end(log, producer_id=7, epoch=1, *, commits=False):
    log.append_markers([EndTransactionMarker(producer_id, epoch, commits)])


def put_marker(store, attributes, key, offset=0):
    part = Part([row(b"", key=key)], attributes=attributes, producer_id=7, producer_epoch=1)
    put_bytes(store, segment_bytes([[part]]), SegmentName(offset))


def test_a_log_with_transactions_is_sound(log, verify):
    for epoch in range(3):
        send(log, epoch=epoch)
        send(log, 8, epoch=epoch)
        end(log, epoch=epoch + 1)
        end(log, 8, epoch=epoch + 1, commits=True)
    send(log, 9)
    log.snapshots.write()
    assert verify() == []
    view = log.observe()
    merge(log.files, view, 0, 9)
    log.snapshots.write()
    assert {kind for kind, _ in verify()} <= {"spent-segment"}


def test_a_marker_without_a_transaction_is_sound(log, verify):
    end(log)
    assert verify() == []


@pytest.mark.parametrize(
    ("attributes", "key", "says"),
    [
        (COMMIT, ControlRecordType.ABORT.key, "COMMIT, its record says ABORT"),
        (ABORT, ControlRecordType.COMMIT.key, "ABORT, its record says COMMIT"),
        (COMMIT, b"\0\0\0\5", "COMMIT, its record says no marker"),
    ],
)
def test_the_header_and_the_key_of_a_marker_must_agree(store, verify, attributes, key, says):
    put_marker(store, attributes, key)
    ((kind, message),) = verify()
    assert kind == "damaged-segment"
    assert says in message


def test_a_batch_behind_the_marker_of_its_epoch_is_an_error(store, log, verify):
    send(log)
    end(log)
    late = Part([row()], attributes=DATA, producer_id=7, producer_epoch=0, base_sequence=2)
    put_bytes(store, segment_bytes([[late]]), SegmentName(3))
    ((kind, message),) = verify()
    assert kind == "late-batch"
    assert "the batch at offset 3 is of producer 7, epoch 0" in message
    assert "the marker at offset 2" in message


class TestSnapshots:
    @pytest.fixture
    def rewrite(self, store, log):
        """Change what the newest snapshot says of transactions."""
        send(log, 8)
        end(log, 8)
        send(log, 7)
        log.snapshots.write()

        def run(**transactions):
            path = f"{DIRECTORY}/{snapshot_name(5)}"
            snapshot = Snapshot.from_buffer(store.open_buffer(path), topic_id=TOPIC_ID, partition=0)
            right = {
                "open_transactions": [OpenTransaction(7, 0, 3)],
                "aborted": [AbortedTransaction(8, 0, 2)],
            }
            snapshot.producers.transactions = TransactionIndex(5, **{**right, **transactions})
            store.put(path, replace(snapshot).to_buffer(topic_id=TOPIC_ID, partition=0))

        return run

    def test_a_right_one_is_sound(self, rewrite, verify):
        rewrite()
        assert verify() == []
        rewrite(aborted=[], unlisted=[(0, 3)])
        assert verify() == []

    def test_one_that_begins_at_the_start_that_cuts_a_transaction_is_sound(
        self, rewrite, verify, log
    ):
        """A snapshot that was written after the log start was moved knows nothing before it."""
        move_log_start(log, 1)
        rewrite(aborted=[], unlisted=[(1, 3)])
        assert verify() == []
        rewrite(aborted=[], unlisted=[(2, 3)])
        ((kind, message),) = verify()
        assert kind == "wrong-snapshot"
        assert "the aborted transaction of producer 8 before offset 2 is missing" in message

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"open_transactions": []}, "the open transaction of producer 7 is missing"),
            ({"open_transactions": [OpenTransaction(7, 0, 2)]}, "producer 7 has no transaction"),
            (
                {"open_transactions": [OpenTransaction(9, 0, 1), OpenTransaction(7, 0, 3)]},
                "producer 9 has no transaction open at 1",
            ),
            ({"aborted": []}, "the aborted transaction of producer 8 before offset 2 is missing"),
            ({"aborted": [], "unlisted": [(0, 2)]}, "the aborted transaction of producer 8"),
        ],
    )
    def test_a_wrong_one_is_repaired(self, rewrite, verify, store, wrong, message):
        rewrite(**wrong)
        ((kind, found),) = verify()
        assert kind == "wrong-snapshot"
        assert message in found
        assert verify(repair=True) == []
        assert verify() == []
        index = open_log(store).transactions()
        assert (index.last_stable_offset, len(index.aborted)) == (3, 1)
