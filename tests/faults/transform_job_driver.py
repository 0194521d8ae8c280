"""``jobs/transform.py`` as a driver that kills itself in a commit, for `test_transform_job_kills`.

    python transform_job_driver.py ARGUMENTS OF THE JOB…

Environment: ``DIE_AT=sent`` or ``decided``, and ``DIE_AT_COMMIT=n``: SIGKILL to the whole process
group in the n-th commit, after the group has the pending offsets or after the decision to commit.
"""

import os
import signal
from unittest.mock import patch

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_log.coordinator import TransactionalOffsets
from spark_log.transaction import TransactionCoordinator
from tests.faults.job_driver import run_job


def copied(records: DataFrame) -> DataFrame:
    """Return other rows each time: the keys are random."""
    return records.select(F.rand().cast("string").alias("key"), "value", "partition", "timestamp")


def die_at_commit(where: str, number: int) -> None:
    """Die in the commit of this number, after the step of this name."""
    done = 0

    def step(*_: object) -> None:
        nonlocal done
        done += 1
        if done == number:
            os.killpg(0, signal.SIGKILL)

    if where == "sent":
        send = TransactionalOffsets.send

        def sending(*arguments):
            send(*arguments)
            step()

        patch.object(TransactionalOffsets, "send", sending).start()
    else:
        after_decision = TransactionCoordinator._after_decision  # noqa: SLF001 - no public step

        def deciding(coordinator, owner, began_ms):
            if coordinator.state.is_committed:
                step()
            return after_decision(coordinator, owner, began_ms)

        patch.object(TransactionCoordinator, "_after_decision", deciding).start()


def main():
    if "DIE_AT" in os.environ:
        die_at_commit(os.environ["DIE_AT"], int(os.environ["DIE_AT_COMMIT"]))
    run_job("transform.py", master="local[2,4]", log_level="OFF")


if __name__ == "__main__":
    main()
