"""A writer is stopped at the worst moment, for longer than ``file.delete.delay.ms``."""

import multiprocessing
import os
import random
import signal

import pytest

from tests.faults.log_checks import check_results
from tests.faults.operation_notes import OperationNotes
from tests.faults.reader_process import PARTITION
from tests.faults.rewriter import Rewriter
from tests.faults.writer_process import Writer, append_and_stop_once
from tests.log.support import open_log
from tests.record.samples import record_batch, row

DELETE_DELAY_MS = 200


@pytest.fixture
def stop_and_go_on(local_store, tmp_path):
    """Let a writer append, stop until its file name was used and freed again, and end."""

    def stop_and_go_on(stopped_at, *, idempotent, without=None):
        config = {"file_delete_delay_ms": DELETE_DELAY_MS}
        writer = Writer(
            local_store, 1, 0, idempotent, str(tmp_path / "writer-1.0"), config, without
        )
        # A child of this process, which is notified when the child stops.
        process = multiprocessing.get_context("spawn").Process(
            target=append_and_stop_once, args=(writer, stopped_at), daemon=True
        )
        process.start()
        assert process.pid is not None
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        try:
            others = open_log(local_store)
            with OperationNotes(tmp_path / "writer-2.0") as notes:
                for value in ("2.0.0", "2.0.1"):
                    operation = notes.begin(PARTITION, value)
                    placed = others.append(record_batch([row(value.encode())]))
                    notes.acknowledge(operation, [placed.base_offset])
            rewriter = Rewriter(local_store, DELETE_DELAY_MS, random.Random(0))
            while not rewriter.freed:
                rewriter.step()
        finally:
            os.kill(process.pid, signal.SIGCONT)
        process.join()
        assert process.exitcode == 0
        return check_results(local_store, tmp_path, idempotent=idempotent)

    return stop_and_go_on


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("stopped_at", ["put", "answer"])
def test_what_a_writer_acknowledges_that_was_stopped_is_in_the_log(
    stopped_at, idempotent, stop_and_go_on
):
    assert stop_and_go_on(stopped_at, idempotent=idempotent)["appends committed"] == 4


def test_a_writer_that_trusts_a_late_success_loses_what_it_acknowledges(stop_and_go_on):
    with pytest.raises(AssertionError, match="lost-write"):
        stop_and_go_on("put", idempotent=False, without="late success")
