"""Random transactions, rewrites and snapshots of one log, compared with a list of its records."""

import uuid
from contextlib import suppress

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from spark_log.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    NotFoundError,
    OffsetOutOfRangeError,
    UnknownOutcomeError,
)
from spark_log.log import OpenTransaction
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.log_start import move_log_start
from spark_log.log.rewrite.merger import merge
from spark_log.log.verify.verifier import Verifier
from spark_log.record import EndTransactionMarker, ProducerAppend
from spark_log.storage.memory import MemoryStore
from spark_log.util.clock import ManualClock
from tests.log.support import HookedStore, done_but, failing, file_names, open_log, values_of
from tests.record.samples import record_batch, row
from tests.storage.emptying import delete_everything

LOST = UnknownOutcomeError("the answer was lost")
COMMITTED = {"isolation_level": "read_committed"}
WAITING = {"spent-segment", "spent-start", "orphaned-file"}

producers = st.integers(0, 3)
handles = st.integers(0, 1)


class TrueTransaction:
    """A transaction of the model: where it began, and how it ended."""

    def __init__(self, first_offset):
        self.first_offset = first_offset
        self.is_committed = None


class Follower:
    """Reads on from where it stopped, through a log of its own."""

    def __init__(self, log):
        self.log = log
        self.position = 0
        self.found = []

    def read(self, batches=None):
        try:
            for batch, following in self.log.stream(self.position, **COMMITTED):
                if batch is not None and not batch.is_control:
                    self.found += batch.offsets().tolist()
                self.position = following
                if batches is not None:
                    batches -= 1
                    if not batches:
                        return
        except OffsetOutOfRangeError as error:
            self.position = error.log_start_offset
            self.read(batches)


class TransactionsMachine(RuleBasedStateMachine):
    """Two appending handles; the model has the transaction of each record, None for plain ones."""

    @initialize(is_compacted=st.booleans())
    def open(self, is_compacted):
        self.clock = ManualClock()
        self.inner = MemoryStore(uuid.uuid4().hex, self.clock)
        self.hooked = HookedStore(self.inner)
        self.policy = "compact" if is_compacted else "delete"
        self.logs = [self.open_log(self.hooked, merge_tail_segments=tail) for tail in (0, 3)]
        self.followers = [
            Follower(self.open_log(HookedStore(self.inner, is_mapped=is_mapped)))
            for is_mapped in (True, False)
        ]
        self.records = {}
        self.end = self.start = 0
        self.epochs = dict.fromkeys(range(4), 0)
        self.sequences = dict.fromkeys(range(4), 0)
        self.passed = dict.fromkeys(range(4), 0)
        self.open_ones = {}

    def open_log(self, store, **config):
        return open_log(
            store,
            clock=self.clock,
            cleanup_policy=self.policy,
            min_cleanable_dirty_ratio=0,
            retention_ms=-1,
            snapshot_interval_segments=5,
            **config,
        )

    def teardown(self):
        if hasattr(self, "inner"):
            delete_everything(self.inner)

    def rows(self, count):
        """Records with keys of their own: a compaction removes aborted ones alone."""
        now_us = self.clock.time_us()
        keys = (b"%d" % offset for offset in range(self.end, self.end + count))
        return record_batch([row(key, key=key, timestamp=now_us) for key in keys])

    def accept(self, info, count, transaction):
        assert (info.base_offset, info.last_offset) == (self.end, self.end + count - 1)
        for offset in range(self.end, self.end + count):
            self.records[offset] = transaction
        self.end += count

    # --- writing ---------------------------------------------------------------------------------

    @rule(handle=handles, count=st.integers(1, 3))
    def plain(self, handle, count):
        self.accept(self.logs[handle].append(self.rows(count)), count, None)

    @rule(handle=handles, producer=producers, count=st.integers(1, 3))
    def send(self, handle, producer, count):
        append = ProducerAppend(
            producer, self.epochs[producer], self.sequences[producer], is_transactional=True
        )
        info = self.logs[handle].append(self.rows(count), producer=append)
        transaction = self.open_ones.setdefault(producer, TrueTransaction(self.end))
        self.accept(info, count, transaction)
        self.sequences[producer] += count

    @rule(
        handle=handles,
        outcomes=st.dictionaries(producers, st.booleans(), min_size=1),
        lost=st.sampled_from([None, done_but(LOST), failing(LOST)]),
    )
    def finish(self, handle, outcomes, lost):
        markers = [
            EndTransactionMarker(producer, self.epochs[producer] + 1, is_committed)
            for producer, is_committed in outcomes.items()
        ]
        if lost is not None:
            self.hooked.once("put_if_absent", lost)
        info = self.logs[handle].append_markers(markers)
        assert info is None or (info.base_offset, info.last_offset) == (
            self.end,
            self.end + len(markers) - 1,
        )
        self.end += len(markers)
        for producer, is_committed in outcomes.items():
            self.epochs[producer] += 1
            self.passed[producer] = self.sequences[producer]
            self.sequences[producer] = 0
            transaction = self.open_ones.pop(producer, None)
            if transaction is not None:
                transaction.is_committed = is_committed

    @rule(handle=handles, producer=producers, is_committed=st.booleans())
    def finish_again(self, handle, producer, is_committed):
        if self.epochs[producer]:
            marker = EndTransactionMarker(producer, self.epochs[producer], is_committed)
            assert self.logs[handle].append_markers([marker]) is None

    @rule(handle=handles, producer=producers)
    def send_as_a_zombie(self, handle, producer):
        if self.epochs[producer]:
            epoch, sequence = self.epochs[producer] - 1, self.passed[producer]
            append = ProducerAppend(producer, epoch, sequence, is_transactional=True)
            with suppress(InvalidProducerEpochError):
                info = self.logs[handle].append(self.rows(1), producer=append)
                raise AssertionError(f"a zombie has appended {info}")

    @precondition(lambda self: self.open_ones)
    @rule(handle=handles, data=st.data())
    def send_out_of_turn(self, handle, data):
        producer = data.draw(st.sampled_from(sorted(self.open_ones)))
        append = ProducerAppend(producer, self.epochs[producer] + 1, 0, is_transactional=True)
        with pytest.raises(InvalidTxnStateError):
            self.logs[handle].append(self.rows(1), producer=append)

    # --- other processes -------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 31_000, 62_000]))
    def wait(self, ms):
        self.clock.advance_ms(ms)

    @rule(data=st.data())
    def merge(self, data):
        log = self.open_log(self.inner)
        view = log.observe()
        if view.live.segments:
            indexes = st.integers(0, len(view.live.segments) - 1)
            first, last = sorted((data.draw(indexes), data.draw(indexes)))
            with suppress(NotFoundError):  # a compacted segment is not merged
                merge(log.files, view, first, last)

    @rule(table_format=st.sampled_from(["none", "delta"]))
    def clean(self, table_format):
        """Compact, or merge what is small; and free what has been spent for long enough."""
        log = self.open_log(self.inner, table_format=table_format)
        PartitionCleaner(log, fan_in=3, table_at_once=True).clean()

    @rule()
    def write_snapshot(self):
        self.open_log(self.inner).snapshots.write()

    @precondition(lambda self: not self.start)
    @rule()
    def lose_snapshots(self):
        """A log whose start has moved needs one: for producers whose records were deleted."""
        for name in file_names(self.inner):
            if name.endswith(".snapshot"):
                self.inner.delete(f"{self.logs[0].directory}/{name}")

    @precondition(lambda self: self.start < self.end)
    @rule(data=st.data())
    def delete_records(self, data):
        self.start = data.draw(st.integers(self.start, self.end))
        move_log_start(self.open_log(self.inner), self.start)

    # --- what must hold --------------------------------------------------------------------------

    @property
    def first_open(self):
        return min((each.first_offset for each in self.open_ones.values()), default=self.end)

    @property
    def last_stable_offset(self):
        return max(self.first_open, self.start)

    def committed(self, start):
        return [
            offset
            for offset, transaction in self.records.items()
            if start <= offset < self.last_stable_offset
            and (transaction is None or transaction.is_committed)
        ]

    @rule(which=st.integers(0, 1), batches=st.sampled_from([1, 2, None]))
    def follow(self, which, batches):
        follower = self.followers[which]
        before, began = len(follower.found), follower.position
        at = max(began, self.start)
        # With a valid listing it may still read what was deleted since.
        allowed = self.committed(follower.position)
        follower.read(batches)
        found = follower.found[before:]
        assert set(found) <= set(allowed)
        expected = [each for each in self.committed(at) if each < follower.position]
        assert [each for each in found if each >= self.start] == expected
        if batches is None:
            # With a valid listing it waits where the transaction begins, also before the start.
            assert follower.position in (
                max(at, self.last_stable_offset),
                max(began, self.first_open),
            )
            blocking = follower.log.blocking_transaction
            assert (blocking is None) == (not self.open_ones)

    @invariant()
    def reads_return_what_is_committed(self):
        if not hasattr(self, "inner"):
            return
        fresh = self.open_log(self.inner)
        for log in (fresh, self.followers[0].log):
            found = [offset for offset, _ in values_of(log.scan(self.start, **COMMITTED))]
            assert found == self.committed(self.start)

    @invariant()
    def the_index_knows_what_is_open(self):
        if not hasattr(self, "inner"):
            return
        index = self.open_log(self.inner).transactions()
        assert index.last_stable_offset == self.last_stable_offset
        assert index.open == tuple(
            sorted(
                (
                    OpenTransaction(producer, self.epochs[producer], each.first_offset)
                    for producer, each in self.open_ones.items()
                ),
                key=lambda each: each.first_offset,
            )
        )

    @rule()
    def verify(self):
        found = Verifier(self.open_log(self.inner)).findings()
        assert [each for each in found if each.is_problem and each.kind not in WAITING] == []


TestTransactions = TransactionsMachine.TestCase
TestTransactions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
