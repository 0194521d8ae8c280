"""The interface through which `clients_kafka` measures a client, and the values sent."""

from collections.abc import Callable, Iterator
from itertools import cycle, islice
from multiprocessing.connection import Connection
from typing import Protocol

VALUE_BYTES = 100
PARTITIONS = 4
MAX_RECORDS = 10_000
"""Maximum number of records per poll."""
FIRST_RECORD_TOPIC = "first"
"""The topic that new processes send their first record to."""

_VALUES = [f"{number:0{VALUE_BYTES}d}".encode() for number in range(1000)]

Send = Callable[[bytes], object]
Poll = Callable[[str, int], float]
ReadStamps = Callable[[str, str, int, Connection], None]


class ClientPeer(Protocol):
    """A client library, and the log behind it.

    Attributes:
        name: the name in the report.
        read_stamps: the function that runs in a new process and reads stamped values of partition
            0, as ``read_stamps(address, topic, count, pipe)`` (`timing.ages_in_another_process`).
        address: the URL of the root, or the bootstrap servers.
        first_record: the Python code that imports the library, sends one record to
            `FIRST_RECORD_TOPIC`, and prints a line after the acknowledgement.
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
        """Return the number of records in the topic."""

    def send_all(self, topic: str, count: int) -> float:
        """Send records one by one; return the seconds until all are acknowledged."""

    def pollers(self) -> dict[str, Poll]:
        """Return functions that read a topic from its start, by their name in the report.

        Each takes the topic and its number of records, and returns the seconds until every value
        was accessed.
        """

    def open_sender(self, topic: str) -> tuple[Send, Callable[[], object]]:
        """Return a function that sends, and a function that closes the sender.

        The first one sends a value without lingering, and waits for the acknowledgement.
        """


def values(count: int) -> Iterator[bytes]:
    """Yield values of 100 bytes."""
    return islice(cycle(_VALUES), count)
