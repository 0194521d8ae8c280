"""The short way of replaying the next batch leaves the same state as the long one."""

from hypothesis import given
from hypothesis import strategies as st

from spark_log.log.producers import NOT_LISTED_US, ProducerState
from spark_log.record import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, SEQUENCES, BatchHeader

producers = st.sampled_from([NO_PRODUCER_ID, 7, 8])
epochs = st.integers(0, 2)
sequences = st.sampled_from([NO_SEQUENCE, 0, 1, 2, 5, SEQUENCES - 1])
follows = st.booleans()
counts = st.integers(1, 3)


@given(st.lists(st.tuples(producers, epochs, sequences, follows, counts), max_size=40))
def test_both_ways_leave_the_same_state(batches):
    long, short = ProducerState(), ProducerState()
    next_sequences: dict[int, tuple[int, int]] = {}
    for producer_id, given_epoch, given_sequence, does_follow, count in batches:
        has_producer = producer_id != NO_PRODUCER_ID
        epoch = given_epoch if has_producer else NO_PRODUCER_EPOCH
        sequence = given_sequence if has_producer else NO_SEQUENCE
        if has_producer and does_follow:
            epoch, sequence = next_sequences.get(producer_id, (epoch, 0))
        header = BatchHeader(0, count - 1, 0, 0, 0, 0, 0, producer_id, epoch, sequence, count)
        long.replay(long.offset, (header,), NOT_LISTED_US)
        if not short.replay_next(producer_id, epoch, sequence, count):
            short.replay(short.offset, (header,), NOT_LISTED_US)
        next_sequences[producer_id] = epoch, (sequence + count) % SEQUENCES
        assert short.offset == long.offset
        assert list(short.entries()) == list(long.entries())
