"""A history is written line by line and read again, whatever a killed process left of it."""

import os
import pickle
import signal
from multiprocessing import get_context

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_log.testing.history import (
    Assign,
    HistoryFormatError,
    HistoryWriter,
    Operation,
    Outcome,
    Poll,
    Polled,
    Send,
    read_history,
)
from spark_log.types import TopicPartition
from tests.testing.history.operations import UNKNOWN, history, poll, send

TEXTS = st.text(max_size=5)
OFFSETS = st.integers(0, 2**40)
PARTITIONS = st.builds(TopicPartition, TEXTS, st.integers(0, 9))
ACTIONS = st.one_of(
    st.builds(Send, PARTITIONS, TEXTS, st.none() | OFFSETS),
    st.builds(
        Poll,
        st.lists(st.builds(Polled, PARTITIONS, OFFSETS, TEXTS), max_size=3).map(tuple),
        st.booleans(),
    ),
    st.builds(Assign, st.lists(st.tuples(PARTITIONS, st.none() | OFFSETS), max_size=3).map(tuple)),
)
TIMES = st.none() | st.integers(0, 2**62)
OPERATIONS = st.builds(
    Operation,
    process=TEXTS,
    number=st.integers(0, 9),
    actions=st.lists(ACTIONS, max_size=3).map(tuple),
    outcome=st.sampled_from(Outcome),
    is_transaction=st.booleans(),
    invoked=TIMES,
    end_invoked=TIMES,
    completed=TIMES,
)


def write(path, operations):
    with HistoryWriter(path) as writer:
        for operation in operations:
            writer.note(operation)


@given(
    operations=st.lists(OPERATIONS, unique_by=lambda each: (each.process, each.number), max_size=5)
)
def test_what_was_written_is_read(operations, tmp_path_factory):
    path = tmp_path_factory.mktemp("history") / "notes"
    write(path, operations)
    read = read_history(path)
    assert list(read.operations) == operations
    assert read.torn == ()


def test_the_last_line_of_an_operation_is_taken_in_the_place_of_the_first(tmp_path):
    begun = Operation("p", 0, (send("a"),), invoked=3)
    other = Operation("p", 1, (send("b"),))
    done = Operation("p", 0, (send("a", 7),), Outcome.COMMITTED, completed=9)
    write(tmp_path / "p", [begun, other, done])
    expected = Operation("p", 0, (send("a", 7),), Outcome.COMMITTED, invoked=3, completed=9)
    assert read_history(tmp_path / "p").operations == (expected, other)


def test_files_of_several_processes_are_one_history(tmp_path):
    write(tmp_path / "p", history(("p", send("a", 0))))
    write(tmp_path / "c", history(("c", poll((0, "a")))))
    operations = read_history(tmp_path / "p", tmp_path / "c").operations
    assert [each.name for each in operations] == ["p/0", "c/0"]


@pytest.mark.parametrize("length", range(1, 90, 7))
def test_a_torn_last_line_is_left_out_and_told(length, tmp_path, caplog):
    path = tmp_path / "p"
    write(path, history(("p", send("a", 0)), ("p", send("é", 1))))
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"\n") + 1 + length])
    read = read_history(path)
    assert [each.name for each in read.operations] == ["p/0"]
    assert read.torn == (str(path),)
    assert "the last line is incomplete" in caplog.text


def test_a_complete_last_line_without_a_line_break_is_read(tmp_path):
    path = tmp_path / "p"
    write(path, history(("p", send("a", 0))))
    path.write_bytes(path.read_bytes().rstrip())
    assert len(read_history(path).operations) == 1
    assert read_history(path).torn == ()


@pytest.mark.parametrize(
    "line",
    [
        "no json",
        "[]",
        "{}",
        '{"process":"p","number":0,"outcome":"lost","actions":[]}',
        '{"process":"p","number":0,"outcome":"committed","actions":[["commit"]]}',
        '{"process":"p","number":0,"outcome":"committed","actions":[["send","t",0,"a","7"]]}',
        '{"process":"p","number":0,"outcome":"committed","actions":[["poll",["t",0,[1]]]]}',
    ],
)
def test_another_line_that_is_no_operation_is_refused(line, tmp_path):
    path = tmp_path / "p"
    write(path, history(("p", send("a", 0))))
    path.write_bytes(path.read_bytes() + f"{line}\n".encode())
    with pytest.raises(HistoryFormatError, match="line 2 is no operation") as refused:
        read_history(path)
    assert (refused.value.path, refused.value.line) == (str(path), 2)
    again = pickle.loads(pickle.dumps(refused.value))
    assert (str(again), again.line) == (str(refused.value), 2)


def note_and_die(path):
    writer = HistoryWriter(path)
    writer.note(history(("p", send("a"), {"outcome": UNKNOWN}))[0])
    os.kill(os.getpid(), signal.SIGKILL)


def test_what_a_killed_process_had_begun_is_of_unknown_outcome(tmp_path):
    process = get_context("spawn").Process(target=note_and_die, args=(tmp_path / "p",))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    (operation,) = read_history(tmp_path / "p").operations
    assert operation.outcome is Outcome.UNKNOWN
