"""``jobs/consume.py`` as a driver that kills itself at a given batch, for `test_consume_job_kills`.

    python consume_job_driver.py ARGUMENTS OF THE JOB…

Environment: ``DIE_AT_COMMIT=n``: SIGKILL to the whole process group after the n-th batch is written
and before its offsets are committed. ``WITHOUT_POSITIONS=1``: the Delta sink leaves out its safety
rule, and keeps no positions in the table.
"""

import os
import signal
import uuid
from unittest.mock import patch

from spark_log.jobs.group.job_member import JobMember
from spark_log.jobs.sink import delta_sink
from tests.faults.job_driver import run_job


def die_at_commit(number):
    """Die after this number of batches is written, before the last one is committed."""
    commit = JobMember.commit
    done = 0

    def dying(share, batch, reached):
        nonlocal done
        done += any(offset > batch.starts[tp] for tp, offset in reached.items())
        if done == number:
            os.killpg(0, signal.SIGKILL)
        return commit(share, batch, reached)

    patch.object(JobMember, "commit", dying).start()


class WithoutPositions(delta_sink.DeltaSink):
    """A new application id each time; a class of the main program is pickled by value."""

    def app_id(self, topic_id, partition):
        return uuid.uuid4().hex


def main():
    if "DIE_AT_COMMIT" in os.environ:
        die_at_commit(int(os.environ["DIE_AT_COMMIT"]))
    if "WITHOUT_POSITIONS" in os.environ:
        patch.object(delta_sink, "DeltaSink", WithoutPositions).start()
    run_job("consume.py", master="local[2]", log_level="ERROR")


if __name__ == "__main__":
    main()
