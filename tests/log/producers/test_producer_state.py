"""The producer state of a partition, replayed from headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.errors import InvalidProducerEpochError, OutOfOrderSequenceError
from spark_log.log.producers.producer_entry import MAX_RUNS, SequenceRun
from spark_log.log.producers.producer_state import ProducerState
from spark_log.record.batch_header import BatchHeader
from spark_log.record.producer_append import (
    ProducerAppend,
    ProducerIdAndEpoch,
    sequence_after,
)

DAY_MS = 86_400_000
LAST = 2**31 - 1


def header(base, count, producer_id=7, epoch=0, sequence=0, attributes=0):
    """A batch header at an offset relative to its segment's base."""
    return BatchHeader(
        base_offset_delta=base,
        last_offset_delta=base + count - 1,
        leader_epoch=0,
        attributes=attributes,
        crc32c=0,
        base_timestamp_us=0,
        max_timestamp_us=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def state_of(*headers, at=0, now_us=0):
    state = ProducerState()
    state.replay(at, headers, now_us)
    return state


def check(state, sequence, *, epoch=0, producer_id=7, now_us=0):
    append = ProducerAppend(producer_id, epoch, sequence)
    state.check(append, now_us=now_us, expiration_ms=DAY_MS, where="flights-0")


def runs_of(state, producer_id=7):
    return dict(state.entries())[producer_id].runs


def known(state):
    """What a state knows of each producer, besides times."""
    return [(each, entry.epoch, entry.all_runs) for each, entry in state.entries()]


class TestSequences:
    @pytest.mark.parametrize(
        ("sequence", "records", "after"),
        [(0, 1, 1), (LAST, 1, 0), (LAST - 1, 3, 1), (5, 2**31, 5)],
    )
    def test_go_on_with_zero_after_the_largest(self, sequence, records, after):
        assert sequence_after(sequence, records) == after

    @pytest.mark.parametrize("bad", [(-1, 0, 0), (0, -1, 0), (0, 2**15, 0), (0, 0, 2**31)])
    def test_out_of_the_headers_range_are_refused(self, bad):
        with pytest.raises(ValueError, match="expected"):
            ProducerAppend(*bad)


class TestRepeats:
    def test_are_found_at_their_first_offsets(self):
        state = state_of(header(0, 3), header(3, 2, sequence=3), at=100)
        assert state.offset == 105
        assert state.find(ProducerAppend(7, 0, 0), 3) == 100
        assert state.find(ProducerAppend(7, 0, 3), 2) == 103

    def test_are_found_after_runs_were_joined(self):
        """An append may have many batches, and a merge joins several appends."""
        state = state_of(*(header(at, 1, sequence=at) for at in range(50)))
        assert runs_of(state) == (SequenceRun(0, 0, 50),)
        assert state.find(ProducerAppend(7, 0, 12), 30) == 12

    @pytest.mark.parametrize(("sequence", "count"), [(4, 2), (5, 1), (2**31 - 1, 2)])
    def test_are_not_appends_that_reach_beyond_known_runs(self, sequence, count):
        assert state_of(header(0, 5)).find(ProducerAppend(7, 0, sequence), count) is None

    def test_are_not_of_another_producer_or_epoch(self):
        state = state_of(header(0, 5))
        assert state.find(ProducerAppend(8, 0, 0), 5) is None
        assert state.find(ProducerAppend(7, 1, 0), 5) is None

    def test_are_found_across_the_wrap(self):
        state = state_of(header(0, 4, sequence=LAST - 1), header(4, 2, sequence=2))
        assert state.find(ProducerAppend(7, 0, LAST - 1), 4) == 0
        assert state.find(ProducerAppend(7, 0, LAST), 3) == 1
        assert state.find(ProducerAppend(7, 0, 2), 2) == 4
        check(state, 4)

    def test_of_the_last_five_are_known_where_others_came_between(self):
        headers = []
        for number in range(MAX_RUNS + 1):
            headers.append(header(2 * number, 1, sequence=number))
            headers.append(header(2 * number + 1, 1, producer_id=8, sequence=number))
        state = state_of(*headers)
        assert state.find(ProducerAppend(7, 0, 0), 1) is None
        for number in range(1, MAX_RUNS + 1):
            assert state.find(ProducerAppend(7, 0, number), 1) == 2 * number

    def test_so_far_back_that_their_numbers_came_again_are_forgotten(self):
        run = SequenceRun(0, 0, 2**30).extended(SequenceRun(2**30, 2**30, 5))
        assert run == SequenceRun(5, 5, 2**30)


class TestCheck:
    def test_the_next_number_is_taken(self):
        check(state_of(header(0, 5)), 5)

    @pytest.mark.parametrize("sequence", [0, 4, 6, LAST])
    def test_any_other_leaves_a_gap_or_is_too_old(self, sequence):
        with pytest.raises(OutOfOrderSequenceError) as caught:
            check(state_of(header(0, 5)), sequence)
        assert (caught.value.base_sequence, caught.value.expected_sequence) == (sequence, 5)

    def test_of_an_unknown_producer_every_number_is_taken(self):
        check(state_of(header(0, 5)), 40, producer_id=8)

    def test_an_older_epoch_is_fenced(self):
        with pytest.raises(InvalidProducerEpochError) as caught:
            check(state_of(header(0, 5, epoch=3)), 5, epoch=2)
        assert (caught.value.producer_epoch, caught.value.current_epoch) == (2, 3)

    def test_a_newer_epoch_begins_with_zero(self):
        state = state_of(header(0, 5))
        check(state, 0, epoch=1)
        with pytest.raises(OutOfOrderSequenceError):
            check(state, 5, epoch=1)

    def test_a_bare_marker_fences_too_and_the_epoch_begins_with_zero(self):
        marker = header(5, 1, epoch=1, sequence=-1, attributes=BatchHeader.CONTROL_BIT)
        state = state_of(header(0, 5), marker)
        with pytest.raises(InvalidProducerEpochError):
            check(state, 5)
        check(state, 0, epoch=1)

    def test_an_older_epoch_in_the_log_wrote_when_the_newer_one_was_forgotten(self):
        """The state is the same with and without a snapshot in between."""
        state = state_of(header(0, 5, epoch=2), header(5, 5, epoch=1, sequence=5))
        assert state.offset == 10
        check(state, 10, epoch=1)
        assert state.find(ProducerAppend(7, 1, 5), 5) == 5

    def test_a_producer_that_was_silent_for_long_is_unknown(self):
        state = state_of(header(0, 5), now_us=1_000)
        with pytest.raises(OutOfOrderSequenceError):
            check(state, 40, now_us=DAY_MS * 1_000 + 999)
        check(state, 40, now_us=DAY_MS * 1_000 + 1_000)
        kept = state.without_expired(now_us=DAY_MS * 1_000 + 999, expiration_ms=DAY_MS)
        assert (kept.offset, list(kept.entries())) == (5, list(state.entries()))
        kept = state.without_expired(now_us=DAY_MS * 1_000 + 1_000, expiration_ms=DAY_MS)
        assert (kept.offset, list(kept.entries())) == (5, [])


class TestReplay:
    def test_skips_headers_that_it_has(self):
        headers = [header(0, 3), header(3, 2, sequence=3)]
        once, twice = state_of(*headers), state_of(*headers)
        twice.replay(0, headers, 0)
        assert list(once.entries()) == list(twice.entries())
        assert twice.offset == 5

    @given(
        st.lists(
            st.tuples(st.sampled_from([-1, 7, 8]), st.integers(1, 4), st.booleans()), max_size=30
        )
    )
    def test_is_the_same_however_the_log_is_cut_into_segments(self, batches):
        """A merge changes no answer, and a snapshot at any offset leads to the same state."""
        sequences: dict[int, int] = {}
        headers, at = [], 0
        for producer_id, count, _ in batches:
            sequence = -1 if producer_id < 0 else sequences.get(producer_id, 0)
            headers.append(header(at, count, producer_id, 0, sequence))
            sequences[producer_id] = sequence + count
            at += count
        whole = state_of(*headers)
        pieces = ProducerState()
        for one, (_, _, resume) in zip(headers, batches, strict=True):
            pieces.replay(0, [one], 0)
            if resume:
                pieces = ProducerState(pieces.offset, pieces.entries())
        assert list(whole.entries()) == list(pieces.entries())
        assert whole.offset == pieces.offset

    @given(
        st.lists(
            st.tuples(st.sampled_from([-1, 7, 8, 9]), st.integers(1, 4), st.integers(0, 4)),
            min_size=1,
            max_size=40,
        ),
        st.data(),
    )
    def test_from_the_state_before_an_offset_leads_to_the_same_state(self, batches, data):
        """A copy of a log that begins at this offset has the producers of the records before."""
        epochs: dict[int, int] = {}
        sequences: dict[int, int] = {}
        headers, at = [], 0
        for producer_id, count, kind in batches:
            epoch, sequence = epochs.get(producer_id, 0), sequences.get(producer_id, 0)
            attributes = 0
            if producer_id < 0:
                epoch, sequence = -1, -1
            elif kind == 0:  # a marker ends a transaction in a new epoch
                epochs[producer_id], sequences[producer_id] = epoch + 1, 0
                epoch, sequence = epoch + 1, -1
                attributes = BatchHeader.TRANSACTIONAL_BIT | BatchHeader.CONTROL_BIT
            else:
                sequences[producer_id] = sequence + count
                attributes = BatchHeader.TRANSACTIONAL_BIT if kind > 2 else 0
            headers.append(header(at, count, producer_id, epoch, sequence, attributes))
            at = headers[-1].last_offset_delta + 1
        whole = state_of(*headers)
        cut = data.draw(st.sampled_from([each.base_offset_delta for each in headers] + [at]))
        again = whole.before(cut)
        again.replay(0, headers, 0)
        assert known(again) == known(whole)
        assert {each.producer_id for each in again.transactions.open} == {
            each.producer_id for each in whole.transactions.open
        }


TRANSACTIONAL = BatchHeader.TRANSACTIONAL_BIT
MARKER = TRANSACTIONAL | BatchHeader.CONTROL_BIT


def batch(at, count, epoch, sequence, producer_id=7):
    return header(at, count, producer_id, epoch, sequence, TRANSACTIONAL)


def marker(at, epoch, producer_id=7):
    return header(at, 1, producer_id, epoch, -1, MARKER)


def continuing(sequence, epoch, *, producer_id=7, since=((7, 3),)):
    origins = tuple(ProducerIdAndEpoch(*each) for each in since)
    return ProducerAppend(producer_id, epoch, sequence, is_transactional=True, continues=origins)


def outcome(state, append, count=2):
    """The offset of an append that is in the log, "next", or the expected sequence number."""
    if (found := state.find(append, count)) is not None:
        return found
    try:
        state.check(append, now_us=0, expiration_ms=DAY_MS, where="flights-0")
    except OutOfOrderSequenceError as error:
        return f"not {error.expected_sequence}"
    return "next"


class TestASequenceThatContinues:
    def test_is_that_of_the_transaction_before(self):
        state = state_of(batch(0, 4, 3, 0), marker(4, 4))
        assert outcome(state, continuing(4, 4)) == "next"
        assert outcome(state, continuing(0, 4)) == 0, "a repeat"
        assert outcome(state, continuing(2, 4)) == 2
        assert outcome(state, continuing(0, 4), 6) == "not 4"
        assert outcome(state, continuing(6, 4)) == "not 4"
        assert outcome(state, ProducerAppend(7, 4, 4, is_transactional=True)) == "not 0"
        assert outcome(state, ProducerAppend(7, 4, 0, is_transactional=True)) == "next"

    def test_is_known_over_several_transactions(self):
        headers = [
            each
            for n in range(7)
            for each in (batch(3 * n, 2, 3 + n, 2 * n), marker(3 * n + 2, 4 + n))
        ]
        state = state_of(*headers)
        assert outcome(state, continuing(14, 10)) == "next"
        assert [outcome(state, continuing(2 * n, 10)) for n in range(7)] == [
            "not 14",
            "not 14",
            6,
            9,
            12,
            15,
            18,
        ], f"{MAX_RUNS} runs"

    def test_knows_nothing_of_an_earlier_client_of_the_producer(self):
        state = state_of(batch(0, 2, 1, 0), marker(2, 2), marker(3, 5))
        append = continuing(0, 5, since=((7, 4),))
        assert outcome(state, append) == "next"
        assert outcome(state, continuing(2, 5, since=((7, 4),))) == "next", "what it wrote is gone"
        state = state_of(batch(0, 2, 1, 0), marker(2, 2))
        assert outcome(state, append) == "next"
        assert outcome(state, continuing(2, 5, since=((7, 4),))) == "not 0"

    def test_knows_nothing_of_a_later_owner(self):
        state = state_of(batch(0, 2, 3, 0), marker(2, 4), batch(3, 2, 6, 0))
        late = continuing(0, 4, since=((7, 6),))
        assert state.find(late, 2) is None
        with pytest.raises(InvalidProducerEpochError):
            outcome(state, continuing(2, 4))

    def test_goes_on_under_another_producer_id(self):
        since = ((7, 3), (9, 0))
        state = state_of(batch(0, 2, 3, 0), marker(2, 4))
        assert outcome(state, continuing(2, 0, producer_id=9, since=since)) == "next"
        assert outcome(state, continuing(0, 0, producer_id=9, since=since)) == 0
        assert outcome(state, continuing(4, 0, producer_id=9, since=since)) == "not 2"
        state = state_of(batch(0, 2, 3, 0), marker(2, 4), batch(3, 2, 0, 2, 9), marker(5, 1, 9))
        assert outcome(state, continuing(4, 1, producer_id=9, since=since)) == "next"
        assert outcome(state, continuing(2, 1, producer_id=9, since=since)) == 3
        assert outcome(state, continuing(0, 1, producer_id=9, since=since)) == 0

    def test_ends_with_a_batch_that_begins_at_0(self):
        state = state_of(batch(0, 2, 3, 0), marker(2, 4), batch(3, 2, 4, 0))
        ((_, entry),) = state.entries()
        assert (entry.earlier_runs, entry.runs) == ((), (SequenceRun(0, 3, 2),))

    @given(st.data())
    def test_is_the_same_after_a_replay_from_any_offset(self, data):
        headers, at, epoch, sequence = [], 0, 3, 0
        for _ in range(data.draw(st.integers(1, 12))):
            kind = data.draw(st.sampled_from(["batch", "batch", "marker", "restart", "gap"]))
            if kind == "marker":
                epoch += 1
                headers.append(marker(at, epoch))
            elif kind == "gap":
                headers.append(header(at, 1, -1, -1, -1))
            else:
                sequence = 0 if kind == "restart" and headers else sequence
                epoch += kind == "restart"
                headers.append(batch(at, 2, epoch, sequence))
                sequence += 2
            at = headers[-1].last_offset_delta + 1
        whole = state_of(*headers)
        cut = data.draw(st.sampled_from([each.base_offset_delta for each in headers] + [at]))
        again = whole.before(cut)
        again.replay(0, headers, 0)
        assert known(again) == known(whole)
