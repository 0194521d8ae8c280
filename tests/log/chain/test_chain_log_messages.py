"""The messages of a chain that an operator reads, when a replica fails."""

import logging

from tests.log.chain.support import Cluster
from tests.log.support import DIRECTORY
from tests.record.samples import numbered


def test_a_replica_that_is_left_out_is_one_warning(caplog):
    cluster = Cluster(1, 2, 3)
    process = cluster.process()
    process.log.append(numbered(0, 2))
    process.lose(2)
    with caplog.at_level(logging.DEBUG, "spark_log"):
        process.log.append(numbered(2, 2))
        process.log.append(numbered(4, 2))
    (warning,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert warning.getMessage() == (
        f"{DIRECTORY}: the replica on broker 2 failed (StorageUnavailableError: the root is lost); "
        f"the in-sync replicas were (1, 2, 3) and are (1, 3) in leader epoch 1. "
        f"Check the root of this broker"
    )
    assert process.suppressed.counts() == {"replica": 1}


def test_the_leader_epoch_that_an_append_continues_in_is_told(caplog):
    cluster = Cluster(1, 2, 3)
    process = cluster.process()
    process.log.append(numbered(0, 2))
    cluster.metadata.change(isr=(1, 3))
    cluster.process().log.append(numbered(2, 2))
    with caplog.at_level(logging.DEBUG, "spark_log.log.chain"):
        process.log.append(numbered(4, 2))
    assert (
        f"{DIRECTORY}: continue in leader epoch 1: leader 1, in-sync replicas (1, 3), joining ()"
    ) in [each.getMessage() for each in caplog.records]
