"""The interface through which `clients_kafka` measures a client, and the values sent."""

from collections.abc import Callable, Iterator
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Protocol

VALUE_BYTES = 100
PARTITIONS = 4
MAX_RECORDS = 10_000
"""Records that one poll may return."""
FIRST_RECORD_TOPIC = "first"
"""Where new processes send their first record to."""

_VALUES = [f"{number:0{VALUE_BYTES}d}".encode() for number in range(1000)]

Send = Callable[[bytes], object]
Poll = Callable[[str, int], float]
ReadStamps = Callable[[str, str, int, Connection], None]


class ClientPeer(Protocol):
    """A client library, and the log behind it.

    Attributes:
        name: in the report.
        read_stamps: what a process runs that reads stamped records of one partition as they come:
            ``read_stamps(address, topic, count, pipe)`` sends a word when it waits for the first
            one, and at last the ages in milliseconds.
        address: where the log is.
        first_record: a program of one line: imports the library, sends one record to
            `FIRST_RECORD_TOPIC`, and ends when that is acknowledged.
    """

    name: str

    @property
    def read_stamps(self) -> ReadStamps: ...

    @property
    def address(self) -> str: ...

    @property
    def first_record(self) -> str: ...

    def create_topic(self, topic: str, partitions: int) -> None: ...

    def record_count(self, topic: str) -> int:
        """Return how many records the topic holds."""

    def send_all(self, topic: str, count: int) -> float:
        """Send records one by one; return the seconds until all are acknowledged."""

    def pollers(self) -> dict[str, Poll]:
        """Return what reads a topic from its start, by what it is called in the report.

        Each is called with the topic and how many records it has, and returns the seconds until
        every value has been looked at.
        """

    def open_sender(self, topic: str) -> tuple[Send, Callable[[], object]]:
        """Return what sends a value without lingering, acknowledged on return, and a close."""


def values(count: int) -> Iterator[bytes]:
    """Yield values of 100 bytes."""
    return islice(cycle(_VALUES), count)
