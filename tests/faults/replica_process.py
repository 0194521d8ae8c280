"""Writers, readers and controllers of a replicated topic, as processes of their own."""

import ctypes
import faulthandler
import logging
import os
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, Literal

from spark_log import Consumer, Producer, TopicPartition
from spark_log.cluster import Cluster
from spark_log.errors import SparkLogError, UnknownOutcomeError
from spark_log.producer import RecordFuture
from spark_log.replication import Controller
from spark_log.testing.history import Operation, Polled
from tests.faults.operation_notes import OperationNotes

Acks = Literal["all", "1", "0"]

TOPIC, PARTITIONS = "t", 2
REQUEST_TIMEOUT_MS = 1_500
_IN_FLIGHT = 20
_CONTROLLER_INTERVAL_S = 0.2

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReplicaRole:
    """The role of one process.

    Attributes:
        root: the cluster's root.
        options: broker id → storage options of its root.
        acks: the ``acks`` of a writer.
        notes: path of its notes, whose name is the name of the process; its ``stderr`` goes to a
            file beside them.
    """

    root: str
    options: Mapping[int, Mapping[str, Any]]
    acks: Acks
    notes: str

    @property
    def name(self):
        return os.path.basename(self.notes)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of a client."""
        return {
            "root": self.root,
            "broker_storage_options": self.options,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
        }


def write_until_stopped(role: ReplicaRole, orders: Connection):
    """Send numbered records to all partitions until the pipe is closed."""
    _redirect(role)
    waiting: deque[tuple[Operation, RecordFuture]] = deque()
    with (
        OperationNotes(role.notes) as operations,
        Producer(**role.settings, acks=role.acks, linger_ms=1) as producer,
    ):
        for number in count():
            if _is_stopped(orders):
                break
            partition = TopicPartition(TOPIC, number % PARTITIONS)
            value = f"{role.name}.{number}"
            operation = operations.begin(partition, value)
            sent = producer.send(TOPIC, value.encode(), partition=partition.partition)
            waiting.append((operation, sent))
            while len(waiting) >= _IN_FLIGHT:
                _note(operations, *waiting.popleft())
        while waiting:
            _note(operations, *waiting.popleft())


def read_until_stopped(role: ReplicaRole, orders: Connection):
    """Read all partitions, from the beginning, until the pipe is closed."""
    _redirect(role)
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    with OperationNotes(role.notes) as operations, Consumer(**role.settings) as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        operations.assign(partitions, 0)
        while not _is_stopped(orders):
            try:
                polled = consumer.poll(timeout_ms=100)
            except SparkLogError as error:
                assert error.retriable, error  # noqa: PT017 - not what is tested
                continue
            for partition, records in polled.items():
                operations.poll(*(_polled(partition, each) for each in records))


def control_until_stopped(role: ReplicaRole, orders: Connection):
    """Run a controller until the pipe is closed."""
    _redirect(role)
    cluster = Cluster(role.root, broker_options=role.options, request_timeout_ms=REQUEST_TIMEOUT_MS)
    Controller(cluster, threads=PARTITIONS).run(lambda: orders.poll(_CONTROLLER_INTERVAL_S))


def _polled(partition, record):
    return Polled(partition, record.offset, record.value.decode())


def _note(operations, operation, sent):
    try:
        metadata = sent.result(60)
    except UnknownOutcomeError as error:
        _log.warning("not acknowledged: %r", error)
    except SparkLogError as error:
        _log.warning("failed: %r", error)
        operations.refuse(operation)
    else:
        operations.acknowledge(operation, [metadata.offset])


def _is_stopped(orders):
    """Whether the pipe was closed: nothing is ever sent through it."""
    return orders.poll(0)


def _redirect(role):
    sys.stderr = open(f"{role.notes}.stderr", "w", buffering=1)  # noqa: SIM115 - until it ends
    os.dup2(sys.stderr.fileno(), 2)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, force=True)
    faulthandler.enable()
    _respect_permissions()


def _respect_permissions():
    """Let permissions hold for this process, also if its user is root (capabilities(7))."""
    if os.geteuid():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3, this thread; later ones inherit
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted and inheritable, twice 32 bits
    assert libc.capget(header, sets) == 0
    for place in range(3):
        sets[place] &= ~0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    assert libc.capset(header, sets) == 0
