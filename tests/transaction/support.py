"""States of a transactional id, reached by changes."""

from spark_log.record import EndTransactionMarker, ProducerIdAndEpoch
from spark_log.transaction import decisions
from spark_log.transaction.records import from_json
from spark_log.transaction.state import TopicIdPartition, TransactionMetadata

P0, P1, P2 = (TopicIdPartition("a-topic", number) for number in range(3))
OWNER = ProducerIdAndEpoch(1, 0)


def after(state, record):
    """The state after a record was stored and read back; None changes nothing."""
    return state if record is None else state.replay(from_json(record.to_json()))


def initialized(transactional_id="t"):
    state = TransactionMetadata(transactional_id)
    return after(state, decisions.initialize(state, 1000, 1))


def ongoing(*partitions, groups=()):
    """A transaction of the owner alone."""
    state = initialized()
    return after(state, decisions.register(state, OWNER, partitions or (P0,), groups))


def joined(state, producer_id, *partitions, groups=()):
    """The state and the identity of a participant that has joined."""
    state = after(state, decisions.join(state, state.owner, producer_id, partitions, groups))
    return state, state.participants[producer_id].producer


def completed(state):
    return after(state, decisions.complete(state, state.transaction))


def markers_in(log):
    """The markers in a partition's log, in order."""
    return [
        marker
        for segment in log.observe().live.segments
        for _, headers in log.files.open(segment.name).all_headers()
        for header in headers
        if (marker := EndTransactionMarker.of_header(header)) is not None
    ]
