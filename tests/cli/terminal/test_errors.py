"""How commands end: the exit status and the one line on stderr."""

import errno
import os
import subprocess
import sys
from typing import Annotated

import pytest
import typer

from spark_log import Admin, errors
from spark_log.cli.terminal.errors import run, verdict
from tests.cli.support import append, environment, spark_log_process

MISTAKES = [
    errors.BrokerIdNotRegisteredError,
    errors.DuplicateBrokerRegistrationError,
    errors.DuplicateResourceError,
    errors.ElectionNotNeededError,
    errors.GroupIdNotFoundError,
    errors.GroupNotEmptyError,
    errors.GroupSubscribedToTopicError,
    errors.InconsistentGroupProtocolError,
    errors.InvalidConfigurationError,
    errors.InvalidGroupIdError,
    errors.InvalidOptionError,
    errors.InvalidPartitionsError,
    errors.InvalidRecordError,
    errors.InvalidReplicaAssignmentError,
    errors.InvalidReplicationFactorError,
    errors.InvalidRootError,
    errors.InvalidSessionTimeoutError,
    errors.InvalidTimestampError,
    errors.InvalidTopicError,
    errors.InvalidTxnTimeoutError,
    errors.InvalidUpdateVersionError,
    errors.NoOffsetForPartitionError,
    errors.NoReassignmentInProgressError,
    errors.OffsetOutOfRangeError,
    errors.RecordTooLargeError,
    errors.ResourceNotFoundError,
    errors.RootNotFoundError,
    errors.SerializationError,
    errors.TopicAlreadyExistsError,
    errors.TransactionalIdNotFoundError,
    errors.UnacceptableCredentialError,
    errors.UnknownTopicOrPartitionError,
    errors.UnsupportedCompressionTypeError,
    errors.UnsupportedStoreError,
    errors.UnsupportedVersionError,
]
FAILURES = [
    errors.AlreadyExistsError,
    errors.AuthorizationError,
    errors.BufferExhaustedError,
    errors.ClockSkewError,
    errors.CommitFailedError,
    errors.ConcurrentModificationError,
    errors.ConcurrentTransactionsError,
    errors.CorruptRecordError,
    errors.DataLossError,
    errors.EligibleLeadersNotAvailableError,
    errors.FencedInstanceIdError,
    errors.GroupMaxSizeReachedError,
    errors.IllegalGenerationError,
    errors.IllegalStateError,
    errors.InvalidProducerEpochError,
    errors.InvalidTxnStateError,
    errors.KafkaTimeoutError,
    errors.LeaderNotAvailableError,
    errors.StripesChangedError,
    errors.LogTruncatedError,
    errors.LogEndOffsetMismatchError,
    errors.LeaderEpochError,
    errors.FencedLeaderEpochError,
    errors.UnknownLeaderEpochError,
    errors.NotEnoughReplicasAfterAppendError,
    errors.NotEnoughReplicasError,
    errors.NotFoundError,
    errors.NotRepeatableError,
    errors.OutOfOrderSequenceError,
    errors.PreferredLeaderNotAvailableError,
    errors.ProducerFencedError,
    errors.RecordDeserializationError,
    errors.ReplicationError,
    errors.StorageError,
    errors.StorageFullError,
    errors.StorageTimeoutError,
    errors.StorageUnavailableError,
    errors.TransactionAbortableError,
    errors.TransactionAbortedError,
    errors.TransactionError,
    errors.UnknownMemberIdError,
    errors.UnknownOutcomeError,
    errors.UnstableOffsetCommitError,
    errors.WakeupError,
]


@pytest.fixture
def outcome(capsys, monkeypatch):
    """Runs a function that does what a command does, and tells how that ended."""
    monkeypatch.delenv("SPARK_LOG_DEBUG", raising=False)

    def outcome(raised):
        def command():
            if raised is not None:
                raise raised

        with pytest.raises(SystemExit) as end:
            run(command, argv=[], prog="tool")
        return end.value.code, capsys.readouterr().err

    return outcome


class TestStatus:
    def test_is_0_when_nothing_is_wrong(self, outcome):
        assert outcome(None) == (0, "")

    @pytest.mark.parametrize("kind", MISTAKES, ids=lambda kind: kind.__name__)
    def test_is_2_for_a_mistake_of_the_user(self, outcome, kind):
        assert outcome(kind("so it is")) == (2, "tool: error: so it is\n")

    @pytest.mark.parametrize("kind", FAILURES, ids=lambda kind: kind.__name__)
    def test_is_1_for_a_failure(self, outcome, kind):
        assert outcome(kind("so it is")) == (1, "tool: error: so it is\n")

    def test_every_error_is_one_or_the_other(self):
        kinds = [
            kind
            for kind in vars(errors).values()
            if isinstance(kind, type) and issubclass(kind, errors.SparkLogError)
        ]
        assert set(MISTAKES) | set(FAILURES) | {errors.SparkLogError} == set(kinds)

    def test_is_1_for_what_nobody_expected(self, outcome):
        status, err = outcome(ZeroDivisionError("division by zero"))
        assert status == 1
        assert err == (
            "tool: error: ZeroDivisionError: division by zero "
            "(SPARK_LOG_DEBUG=1 shows the traceback)\n"
        )

    def test_is_130_for_ctrl_c_and_nothing_is_said(self, outcome):
        assert outcome(KeyboardInterrupt()) == (130, "")

    def test_is_141_when_nobody_reads_on_and_nothing_is_said(self, outcome):
        assert outcome(BrokenPipeError(errno.EPIPE, "Broken pipe")) == (141, "")

    def test_is_what_a_command_says_it_is(self, outcome):
        assert outcome(typer.Exit(3)) == (3, "")


class TestLine:
    def test_is_one_also_of_a_message_of_many(self, outcome):
        error = errors.InvalidRecordError("columns are\n  key: binary\n\n  value: binary")
        assert outcome(error) == (2, "tool: error: columns are key: binary value: binary\n")

    def test_names_the_file_that_the_operating_system_complains_of(self, outcome):
        error = OSError(errno.EACCES, os.strerror(errno.EACCES), "/data/log")
        assert outcome(error) == (1, "tool: error: /data/log: Permission denied\n")

    def test_says_where_the_help_is(self, capsys):
        def command(count: Annotated[int, typer.Option()]):
            raise AssertionError(count)

        with pytest.raises(SystemExit) as end:
            run(command, argv=["--count", "many"], prog="tool")
        err = capsys.readouterr().err
        assert end.value.code == 2
        assert err.startswith("tool: error: Invalid value for '--count': ")
        assert "'many' should be a valid integer" in err
        assert err.endswith(" (see tool --help)\n")
        assert err.count("\n") == 1

    def test_begins_with_the_name_of_a_script(self, capsys, monkeypatch):
        def command():
            raise errors.InvalidTopicError("no")

        monkeypatch.setattr(sys, "argv", ["/jobs/consume.py"])
        with pytest.raises(SystemExit):
            run(command)
        assert capsys.readouterr().err == "consume.py: error: no\n"

    def test_follows_the_traceback_that_was_asked_for(self, outcome, monkeypatch):
        monkeypatch.setenv("SPARK_LOG_DEBUG", "1")
        _, err = outcome(errors.InvalidTopicError("so it is"))
        assert err.startswith("Traceback (most recent call last):\n")
        assert err.endswith("\ntool: error: so it is\n")


class TestQuotedBySpark:
    """Spark wraps what Python raised in a text of its own, traceback and all."""

    @pytest.mark.parametrize(
        ("kind", "status"),
        [(errors.UnknownTopicOrPartitionError, 2), (errors.CorruptRecordError, 1)],
        ids=["mistake", "failure"],
    )
    def test_is_what_it_was_before(self, kind, status):
        quoted = RuntimeError(
            "[PYTHON_EXCEPTION] An exception was thrown:\nTraceback (most recent call last):\n"
            '  File "reader.py", line 3, in read\n    raise error\n'
            f"spark_log.errors.{kind.__name__}: so it is: really\n\n\tat org.apache.spark.Task"
        )
        assert verdict(quoted) == (status, "so it is: really")


class TestRealProcess:
    def test_a_closed_pipe_ends_it_silently(self, root, folder):
        for _ in range(20):
            append(root, "flights", *[b"x" * 1000] * 100)
        process = spark_log_process(
            "console-consumer", "flights", "--from-beginning", "--root", root, cwd=folder
        )
        assert process.stdout.readline() == "x" * 1000 + "\n"
        process.stdout.close()
        assert process.wait(timeout=60) == 141
        assert process.stderr.read() == ""

    @pytest.mark.parametrize(
        "command",
        [
            "topics list",
            "topics describe --json",
            "configs describe --all",
            "offsets list flights",
            "groups list --json",
            "log-dirs",
            "verify",
            "version",
            "--help",
        ],
    )
    def test_a_pipe_that_nobody_reads_ends_any_of_them_silently(self, root, folder, command):
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, "wb") as nobody:
            named = [] if command in ("version", "--help") else ["--root", root]
            argv = [*command.split(), *named]
            process = spark_log_process(*argv, cwd=folder, stdout=nobody)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (141, "")

    def test_a_full_disk_behind_stdout_is_a_failure(self, root, folder):
        with open("/dev/full", "w") as full:
            process = spark_log_process("topics", "list", "--root", root, cwd=folder, stdout=full)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (1, "spark-log: error: No space left on device\n")

    def test_a_full_disk_is_noticed_also_where_a_script_just_prints(self, folder):
        script = "from spark_log.cli import run\ndef job(): print('done')\nrun(job, argv=[])"
        with open("/dev/full", "w") as full:
            command = [sys.executable, "-c", script]
            done = subprocess.run(
                command, env=environment(), stdout=full, stderr=subprocess.PIPE, check=False
            )
        assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
        assert b"No space left on device" in done.stderr

    def test_without_any_stream_it_still_works(self, root, folder):
        command = f'exec "$0" -m spark_log.cli topics create again --root {root} <&- >&- 2>&-'
        env = {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(["sh", "-c", command, sys.executable], env=env, check=False)
        assert done.returncode == 0
        assert "again" in Admin(root).list_topics()
