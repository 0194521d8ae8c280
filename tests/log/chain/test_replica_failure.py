"""Whatever one replica's root answers is that replica's fault, at every step of every call."""

import errno

import pytest

from spark_log import errors
from spark_log.errors import (
    AlreadyExistsError,
    AuthorizationError,
    BrokerIdNotRegisteredError,
    CorruptRecordError,
    FencedLeaderEpochError,
    InvalidProducerEpochError,
    LeaderNotAvailableError,
    NotFoundError,
    SparkLogError,
    StorageError,
    StorageUnavailableError,
    UnknownOutcomeError,
)
from spark_log.log import StagingFailedError
from spark_log.log.chain.replica_failure import ReplicaFailedError, blaming, is_replicas_fault
from spark_log.log.log_start import move_log_start
from spark_log.record import ProducerAppend
from spark_log.storage.memory import _MemoryStagedFile as MemoryStagedFile
from spark_log.threads import CallExpiredError
from tests.log.chain.support import OPERATIONS, Cluster
from tests.log.support import failing, values
from tests.record.samples import START_US, numbered


def _subclasses(kind):
    return {kind, *(below for each in kind.__subclasses__() for below in _subclasses(each))}


KINDS = sorted(
    {each for each in _subclasses(StorageError) if each.__module__ == errors.__name__}
    - {AlreadyExistsError, UnknownOutcomeError}
    | {CorruptRecordError},
    key=lambda each: each.__name__,
)
"""Every kind of error that a root, or the files in it, may answer with."""

EIO = OSError(errno.EIO, "Input/output error")
ERRORS = [*(each("it fails") for each in KINDS), EIO]
NAMES = [type(each).__name__ for each in ERRORS]
WRITING = [each for each in ERRORS if not isinstance(each, CorruptRecordError)]
OPENING = [*ERRORS[:-1], BrokerIdNotRegisteredError("no such broker")]  # which tells every OSError

READS = {
    "observe": lambda log: min(log.observe().log_end_offset, 5),
    "end offset": lambda log: min(log.end_offset(isolation_level="read_committed"), 5),
    "start offset": lambda log: log.observe().log_start_offset,
    "read on": lambda log: [at for each, at in log.stream(0) if each and not each.is_control],
    "fetch": values,
    "scan": lambda log: [batch.end_offset for batch in log.scan(0)],
    "time": lambda log: log.offset_for_time(START_US),
    "producers": lambda log: set(log.producers().entries()),
    "transactions": lambda log: min(log.transactions().last_stable_offset, 5),
    "segments": lambda log: [each.end_offset for each in log.segments(log.observe())[0]][:2],
}
"""What can be read of a log; barriers of new epochs behind its records are left out."""


def idempotent(sequence):
    return ProducerAppend(7, 0, sequence)


def filled(**config):
    """Return a cluster whose partition has five records, and a process that has put them."""
    cluster = Cluster(min_insync=2, **config)
    process = cluster.process()
    process.log.append(numbered(0, 3), producer=idempotent(0))
    process.log.append(numbered(3, 2), producer=idempotent(3))
    return cluster, process


def read(process):
    """Return the values of all records that a reader gets."""
    return [value for _, value in values(process.log)]


def ended(process, brokers):
    return {each: process.replica(each).files.observe().log_end_offset for each in brokers}


@pytest.fixture(params=[True, False], ids=["file system", "object store"])
def is_mapped(request):
    return request.param


def set_mapped(process, is_mapped):
    for store in process.stores.values():
        store.is_mapped = is_mapped
        store.shows_gone = is_mapped


@pytest.mark.parametrize("broker", [1, 2, 3])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("knows", [True, False], ids=["knows the log", "new"])
def test_an_append_goes_on_with_the_others(knows, operation, broker, is_mapped):
    for error in WRITING if operation in ("stage", "put_if_absent", "put") else ERRORS:
        cluster, process = filled()
        if not knows:
            process = cluster.process()
        set_mapped(process, is_mapped)
        process.stores[broker].on(operation, failing(error))
        process.log.append(numbered(5, 1), producer=idempotent(5))
        isr = cluster.metadata.state.isr
        assert {1, 2, 3} - {*isr} <= {broker}, "a replica that is well was left out"
        assert len({*ended(cluster.process(), isr).values()}) == 1
        assert read(cluster.process()) == [b"record:%d" % number for number in range(6)]


@pytest.mark.parametrize("broker", [1, 2, 3])
@pytest.mark.parametrize("error", OPENING, ids=lambda each: type(each).__name__)
def test_a_root_that_cannot_be_opened_is_left_out(error, broker):
    cluster, _ = filled()
    process = cluster.process()
    process.refused[broker] = error
    assert process.log.append(numbered(5, 1), producer=idempotent(5)).base_offset >= 5
    assert broker not in cluster.metadata.state.isr


@pytest.mark.parametrize("step", ["seal", "size"])
@pytest.mark.parametrize("error", WRITING, ids=lambda each: type(each).__name__)
def test_a_segment_that_cannot_be_written_is_staged_on_the_next_leader(error, step):
    cluster, process = filled()

    class Failing(MemoryStagedFile):
        def seal(self):
            if step == "seal":
                raise error
            super().seal()

        @property
        def size_bytes(self):
            if self.sink.closed:
                raise error
            return super().size_bytes

    def stage(path, call):
        return Failing()

    process.stores[1].on("stage", stage)
    writer = process.log.segment_writer()
    writer.write(numbered(5, 2_000))  # few records are staged in memory
    with pytest.raises(StagingFailedError):
        writer.finish()
    assert cluster.metadata.state.isr == (2, 3)
    assert process.log.append(numbered(5, 1), producer=idempotent(5)).base_offset >= 5


@pytest.mark.parametrize("what", READS)
@pytest.mark.parametrize("operation", ["list", "open_buffer", "read", "read_tail", "head"])
def test_a_read_goes_on_with_the_others(operation, what, is_mapped):
    for error in ERRORS:
        cluster, process = filled()
        expected = READS[what](process.log)
        reader = cluster.process()
        set_mapped(reader, is_mapped)
        reader.stores[3].on(operation, failing(error))
        assert READS[what](reader.log) == expected
        assert {1, 2, 3} - {*cluster.metadata.state.isr} <= {3}


@pytest.mark.parametrize("what", READS)
def test_a_root_that_fails_after_it_was_read_is_left_by_the_next_read(what):
    for error in ERRORS:
        cluster, _ = filled()
        reader = cluster.process()
        expected = READS[what](reader.log)
        reader.lose(3, error)
        assert READS[what](reader.log) == expected


@pytest.mark.parametrize("broker", [1, 2, 3])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_records_are_deleted_on_the_others(operation, broker):
    for error in ERRORS:
        cluster, _ = filled()
        process = cluster.process()
        process.stores[broker].on(operation, failing(error))
        assert process.log.move_start(2) == 2
        assert {1, 2, 3} - {*cluster.metadata.state.isr} <= {broker}


class TestTheCallersErrors:
    def test_the_metadata_cannot_be_read_and_no_replica_is_blamed(self):
        """The leader has the append of an earlier try: the metadata are read before it counts."""
        cluster, process = filled()
        refresh = process.states.refresh

        def fails_once():
            process.states.refresh = refresh
            raise AuthorizationError("the metadata are denied")

        process.states.refresh = fails_once
        with pytest.raises(UnknownOutcomeError, match="the metadata are denied"):
            process.log.append(numbered(3, 2), producer=idempotent(3))
        assert cluster.metadata.state.isr == (1, 2, 3)

    def test_all_replicas_fail(self):
        cluster, process = filled()
        cluster.metadata.min_insync = 1
        for broker in (1, 2, 3):
            process.lose(broker, AuthorizationError(f"denied by {broker}"))
        with pytest.raises(AuthorizationError, match="denied by 3"):
            process.log.append(numbered(5, 1), producer=idempotent(5))

    def test_the_last_one_in_sync_fails_while_others_are_well(self):
        """Nothing was appended, and the same call may succeed later: as without a leader."""
        cluster, process = filled()
        cluster.metadata.min_insync = 1
        cluster.metadata.change(isr=(3,))
        process.log.replicate()
        process.lose(3, AuthorizationError("denied"))
        with pytest.raises(LeaderNotAvailableError, match=r"broker 3 failed \(denied\)") as raised:
            process.log.append(numbered(5, 1), producer=idempotent(5))
        assert raised.value.retriable
        assert isinstance(raised.value.__cause__, AuthorizationError)

    def test_damage_of_the_only_replica_is_told_as_it_is(self):
        _, process = filled()
        process.states.remove_from_isr(process.states.current(), (1, 2))
        process.log.replicate()
        process.lose(3, CorruptRecordError("damaged"))
        with pytest.raises(CorruptRecordError, match="damaged"):
            values(process.log_again())

    @pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
    def test_this_process_has_too_much_open(self, number):
        cluster, process = filled()
        error = StorageError("too many open files")
        error.__cause__ = OSError(number, "too many")
        process.lose(1, error)
        with pytest.raises(StorageError, match="too many open files"):
            process.log.append(numbered(5, 1), producer=idempotent(5))
        assert cluster.metadata.state.isr == (1, 2, 3)

    def test_the_time_of_the_call_is_up(self):
        cluster, process = filled()
        process.lose(1, CallExpiredError("default.api.timeout.ms has passed"))
        with pytest.raises(CallExpiredError):
            process.log.append(numbered(5, 1), producer=idempotent(5))
        process.find(1)
        process.lose(3, CallExpiredError("default.api.timeout.ms has passed"))
        with pytest.raises(CallExpiredError):
            values(process.log_again())
        assert cluster.metadata.state.isr == (1, 2, 3)

    @pytest.mark.parametrize("broker", [1, 3])
    def test_a_client_that_may_not_change_the_metadata_waits_for_others(self, broker):
        cluster, _ = filled()
        process = cluster.process()

        def denied(state, brokers):
            raise AuthorizationError("__cluster_metadata-0: denied")

        process.states.remove_from_isr = denied
        process.lose(broker, NotFoundError("gone"))
        expected = StorageUnavailableError if broker == 1 else UnknownOutcomeError
        with pytest.raises(expected, match=r"may not take it out.*metadata-0"):
            process.log.append(numbered(5, 1), producer=idempotent(5))
        if broker == 3:
            with pytest.raises(StorageUnavailableError, match=r"gone.*may not take it out"):
                values(process.log_again())
        cluster.process().states.remove_from_isr(cluster.process().states.current(), (broker,))
        process.states.refresh()
        assert process.log.append(numbered(5, 1), producer=idempotent(5)).base_offset >= 5


class TestTheOutcome:
    """Once a segment may be in the log, no error says that it is not."""

    @pytest.mark.parametrize(
        "late",
        [
            EIO,
            FencedLeaderEpochError("fenced"),
            InvalidProducerEpochError("newer"),
            LeaderNotAvailableError("none"),
        ],
        ids=lambda each: type(each).__name__,
    )
    def test_is_unknown_after_a_put_whatever_comes_next(self, late):
        cluster, process = filled()

        def fails(*_):
            cluster.metadata.is_down = True
            raise late

        process.log._chain._bring_up_followers = fails  # noqa: SLF001 - any error, at one place
        with pytest.raises(UnknownOutcomeError):
            process.log.append(numbered(5, 1), producer=idempotent(5))
        assert ended(process, (1, 2)) == {1: 6, 2: 5}

    def test_is_known_if_the_staged_file_is_lost_before_the_put(self):
        cluster, process = filled()
        writer = process.log.segment_writer()
        writer.write(numbered(5, 1))
        staged = writer.finish()
        process.lose(1, NotFoundError("gone"))
        staged.__dict__.pop("data", None)

        def gone():
            raise NotFoundError("gone")

        staged.staged.read_back = gone
        with pytest.raises(StagingFailedError) as raised:
            process.log.append_segment(staged)
        assert not isinstance(raised.value, UnknownOutcomeError)
        assert len(read(cluster.process())) == 5

    def test_is_appended_although_the_staged_file_cannot_be_read_after_the_put(self):
        _, process = filled()
        writer = process.log.segment_writer(producer=idempotent(5))
        writer.write(numbered(5, 1))
        staged = writer.finish()

        def gone():
            raise NotFoundError("gone")

        def put(path, call):
            call()
            staged.__dict__.pop("data", None)
            staged.staged.read_back = gone

        process.stores[1].once("put_if_absent", put)
        assert process.log.append_segment(staged).base_offset == 5
        assert process.end_offsets() == [6, 6, 6]

    def test_of_a_start_that_was_moved_on_some_is_unknown(self):
        cluster, process = filled()
        process.lose(2, NotFoundError("gone"))
        cluster.metadata.is_down = True
        with pytest.raises(UnknownOutcomeError):
            process.log.move_start(2)
        assert move_log_start(process.replica(1), 0) == 2


class TestBlaming:
    @pytest.mark.parametrize("error", OPENING, ids=lambda each: type(each).__name__)
    def test_names_the_replica_and_keeps_the_error(self, error):
        with pytest.raises(ReplicaFailedError) as raised, blaming(4):
            raise error
        assert raised.value.broker_id == 4
        assert isinstance(raised.value.error, SparkLogError)
        assert raised.value.error is error or raised.value.error.__cause__ is error

    @pytest.mark.parametrize(
        "error", [InvalidProducerEpochError("newer"), ValueError("a bug"), KeyboardInterrupt()]
    )
    def test_lets_errors_of_callers_pass(self, error):
        with pytest.raises(type(error)), blaming(4):
            raise error
        assert not is_replicas_fault(error)
