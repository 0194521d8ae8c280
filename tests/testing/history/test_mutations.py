"""Histories of a sound log have no findings, and each with one thing wrong has the right one."""

from dataclasses import replace
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_log.testing.history import Anomaly, Outcome, Poll, Polled, Send, check_history
from tests.testing.history.sound_log import SoundLog

LOGS = st.builds(SoundLog, st.randoms(use_true_random=False), st.integers(20, 120))
SOME = settings(max_examples=30)
"""A mutation is found in any history that has it, so that fewer than Hypothesis' 100 show it."""


def each_poll(operations, change):
    """Return the operations with changed records of each poll."""
    return [
        replace(
            operation,
            actions=tuple(
                replace(action, records=tuple(change(operation, action.records)))
                if isinstance(action, Poll)
                else action
                for action in operation.actions
            ),
        )
        for operation in operations
    ]


def sends_of(operations, outcome):
    """Return the sends with this outcome whose offset is known."""
    return [
        (operation, action)
        for operation in operations
        if operation.outcome is outcome
        for action in operation.actions
        if isinstance(action, Send) and action.offset is not None
    ]


def record_of(send):
    return Polled(send.topic_partition, send.offset, send.value)


def anomalies(operations):
    return {each.anomaly for each in check_history(operations).anomalies}


@given(log=LOGS)
def test_a_sound_log_with_crashes_has_no_findings(log):
    assert anomalies(log.operations) == set()


def test_sound_logs_have_everything_that_is_checked():
    operations = SoundLog(Random(1), 2000).operations
    assert {each.outcome for each in operations} == {*Outcome}
    records = [
        record
        for operation in operations
        for action in operation.actions
        if isinstance(action, Poll)
        for record in action.records
    ]
    assert len(records) > 1000
    assert sends_of(operations, Outcome.ABORTED)
    assert sum(each.is_transaction and len(each.actions) > 2 for each in operations) > 50
    # Kafka allows these, and they happen.
    assert {*check_history(operations).counts} >= {Anomaly.WRITE_CYCLE}


@SOME
@given(log=LOGS, data=st.data())
def test_an_acknowledged_record_that_the_log_lost_is_found(log, data):
    sends = sends_of(log.operations, Outcome.COMMITTED)
    assume(sends)
    _, send = data.draw(st.sampled_from(sends))
    lost = record_of(send)
    operations = each_poll(
        log.operations, lambda _, records: [each for each in records if each != lost]
    )
    later = [
        record
        for operation in operations
        for action in operation.actions
        if isinstance(action, Poll)
        for record in action.records
        if record.topic_partition == lost.topic_partition and record.offset > lost.offset
    ]
    assert (Anomaly.LOST_WRITE if later else Anomaly.UNSEEN) in anomalies(operations)


@SOME
@given(log=LOGS, data=st.data())
def test_a_record_that_the_log_has_twice_is_found(log, data):
    sends = sends_of(log.operations, Outcome.COMMITTED)
    assume(sends)
    _, send = data.draw(st.sampled_from(sends))
    again = record_of(send)._replace(offset=len(log.logs[send.topic_partition]))

    def read_again(operation, records):
        is_last = operation.process.startswith("last") and record_of(send) in records
        return (*records, again) if is_last else records

    found = anomalies(each_poll(log.operations, read_again))
    assert found == {Anomaly.DUPLICATE}


@SOME
@given(log=LOGS, data=st.data())
def test_two_records_that_changed_places_in_the_log_are_found(log, data):
    sends = sends_of(log.operations, Outcome.COMMITTED)
    assume(sends)
    _, one = data.draw(st.sampled_from(sends))
    others = [
        send for _, send in sends if send.topic_partition == one.topic_partition and send != one
    ]
    assume(others)
    other = data.draw(st.sampled_from(others))
    swapped = {
        record_of(one): record_of(one)._replace(value=other.value),
        record_of(other): record_of(other)._replace(value=one.value),
    }
    found = anomalies(
        each_poll(log.operations, lambda _, records: [swapped.get(each, each) for each in records])
    )
    assert Anomaly.INCONSISTENT_OFFSETS in found


@SOME
@given(log=LOGS, data=st.data())
def test_acknowledgements_that_were_swapped_are_found(log, data):
    """The log is right; a client was told of wrong offsets."""
    operations = [
        (number, each)
        for number, each in enumerate(log.operations)
        if each.outcome is Outcome.COMMITTED
        and len(each.actions) == 2
        and all(isinstance(action, Send) for action in each.actions)
        and each.actions[0].topic_partition == each.actions[1].topic_partition
    ]
    assume(operations)
    number, operation = data.draw(st.sampled_from(operations))
    one, other = operation.actions
    actions = replace(one, offset=other.offset), replace(other, offset=one.offset)
    changed = log.operations
    changed[number] = replace(operation, actions=actions)
    assert anomalies(changed) >= {
        Anomaly.INTERNAL_NONMONOTONIC_SEND,
        Anomaly.INCONSISTENT_OFFSETS,
        Anomaly.DUPLICATE,
    }


@SOME
@given(log=LOGS, data=st.data())
def test_an_aborted_record_that_is_polled_is_found(log, data):
    sends = sends_of(log.operations, Outcome.ABORTED)
    assume(sends)
    _, send = data.draw(st.sampled_from(sends))
    shown = record_of(send)

    def show(operation, records):
        is_of_it = operation.process.startswith("last") and all(
            each.topic_partition == shown.topic_partition for each in records
        )
        return sorted({*records, shown}) if is_of_it and records else records

    operations = each_poll(log.operations, show)
    assume(operations != log.operations)
    assert anomalies(operations) == {Anomaly.ABORTED_READ}


@SOME
@given(log=LOGS, data=st.data())
def test_a_poll_that_leaves_out_a_record_between_two_is_found(log, data):
    positions = [
        (number, place)
        for number, operation in enumerate(log.operations)
        if operation.process.startswith("last")
        for action in operation.actions
        if isinstance(action, Poll)
        for place in range(len(action.records) - 1)
    ]
    assume(positions)
    number, place = data.draw(st.sampled_from(positions))
    reader = log.operations[number]
    left_out = reader.actions[0].records[place]
    assume(left_out in [record_of(send) for _, send in sends_of(log.operations, Outcome.COMMITTED)])

    def leave_out(operation, records):
        return [each for each in records if operation != reader or each != left_out]

    found = anomalies(each_poll(log.operations, leave_out))
    assert found & {Anomaly.INTERNAL_POLL_SKIP, Anomaly.POLL_SKIP}


@SOME
@given(log=LOGS, data=st.data())
def test_a_transaction_of_which_a_part_is_hidden_is_found(log, data):
    """The last reader polls everything, but for one record of a transaction of several."""
    parts = [
        (operation, action)
        for operation, action in sends_of(log.operations, Outcome.COMMITTED)
        if operation.is_transaction
        and sum(isinstance(each, Send) for each in operation.actions) > 1
    ]
    assume(parts)
    _, send = data.draw(st.sampled_from(parts))
    hidden = record_of(send)

    def hide(reader, records):
        is_last = reader.process.startswith("last")
        return [each for each in records if not is_last or each != hidden]

    operations = each_poll(log.operations, hide)
    is_passed = any(
        record.topic_partition == hidden.topic_partition and record.offset > hidden.offset
        for reader in operations
        if reader.process.startswith("last")
        for action in reader.actions
        if isinstance(action, Poll)
        for record in action.records
    )
    assume(is_passed)
    assert Anomaly.TORN_TRANSACTION in anomalies(operations)


@SOME
@given(log=LOGS, data=st.data())
def test_a_poll_in_another_order_is_found(log, data):
    polls = [
        number
        for number, operation in enumerate(log.operations)
        if operation.process.startswith("last")
        for action in operation.actions
        if isinstance(action, Poll) and len(action.records) > 1
    ]
    assume(polls)
    reader = log.operations[data.draw(st.sampled_from(polls))]

    def turn(operation, records):
        return records[::-1] if operation == reader else records

    assert Anomaly.INTERNAL_NONMONOTONIC_POLL in anomalies(each_poll(log.operations, turn))


@SOME
@given(log=LOGS, data=st.data())
def test_a_record_that_is_polled_before_its_commit_began_is_found(log, data):
    committed = [
        operation
        for operation, _ in sends_of(log.operations, Outcome.COMMITTED)
        if operation.is_transaction
    ]
    assume(committed)
    chosen = data.draw(st.sampled_from(committed))
    end = max(each.completed or 0 for each in log.operations) + 1
    operations = [
        replace(each, end_invoked=end, completed=end + 1) if each == chosen else each
        for each in log.operations
    ]
    assert anomalies(operations) == {Anomaly.INTERMEDIATE_READ}


@SOME
@given(log=LOGS)
def test_the_same_history_gives_the_same_findings(log):
    operations = each_poll(log.operations, lambda _, records: records[::2])
    assert str(check_history(operations)) == str(check_history(operations))
    assert check_history(operations).to_arrow() == check_history(operations).to_arrow()
