"""Measures what clients that have nothing to do cost a gateway, and a Kafka broker beside it.

    python -m benchmarks.gateway_idle
    python -m benchmarks.gateway_idle --no-kafka --connections 100

The clients speak the protocol in this process, so the CPU time is the server's alone.

- Idle producers: connections that have asked for the metadata, and send nothing more.
- Idle consumers: each has a connection, and a fetch that waits for records of one partition. It is
  sent again when it ends after 500 ms, the default of Java's and librdkafka's clients.
- One consumer of many partitions that is at the end of all of them: with a fetch session (KIP-227),
  as Java's and Go's clients have, and without, as librdkafka's.
"""

import argparse
import asyncio
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.command_line import positive
from benchmarks.gateway import cpu_s_of, running_gateway
from benchmarks.kafka_broker import KafkaBroker, exit_status
from benchmarks.log_report import Figure, Report, parser, run
from benchmarks.process_memory import memory_bytes
from spark_log.gateway.protocol import decode_response, encode_request, message_class, new_message

TOPIC = "idle"
PARTITIONS = (200, 1_000)
MAX_WAIT_MS = 500
_FETCH_VERSION = 12
_LENGTH = struct.Struct(">i")
Requests = Callable[[memoryview | None], bytes | None]
"""A client: from the last answer's frame (None at first) to the next request's (None: no more)."""
_MB = 1_000_000
_Fetch = message_class("FetchRequest")
_CreateTopics = message_class("CreateTopicsRequest")


@dataclass(frozen=True, slots=True)
class Server:
    """A server of Kafka's protocol: its name in the report, address and process."""

    name: str
    address: str
    pid: int

    def cpu_s(self) -> float:
        """Return the CPU time that it has used."""
        return cpu_s_of(self.pid)

    def memory_mb(self) -> float:
        """Return its resident memory."""
        return memory_bytes(self.pid)["VmRSS"] / _MB


class Connection(asyncio.Protocol):
    """One connection, which sends a request at a time.

    Attributes:
        answers: the number of answers so far.
        answered_bytes: their size.
    """

    def __init__(self, next_request: Requests) -> None:
        """Return a connection of a client."""
        self._next_request = next_request
        self._received = bytearray()
        self._transport: Any = None
        self.answers = 0
        self.answered_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = transport
        self._send(None)

    def data_received(self, data: bytes) -> None:
        """Take an answer, and send the next request."""
        self._received += data
        if len(self._received) < _LENGTH.size:
            return
        end = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
        if len(self._received) >= end:
            frame = memoryview(bytes(self._received[_LENGTH.size : end]))
            del self._received[:end]
            self.answers += 1
            self.answered_bytes += end
            self._send(frame)

    def _send(self, frame: memoryview | None) -> None:
        request = self._next_request(frame)
        if request is not None:
            self._transport.write(request)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


def _frame(name: str, version: int, **fields: Any) -> bytes:
    request = new_message(f"{name}Request", **fields)
    return b"".join(encode_request(name, version, 1, "benchmark", request))


def metadata_once() -> Requests:
    """Return the requests of an idle producer."""
    frame = _frame("Metadata", 9, topics=[])
    return lambda answer: frame if answer is None else None


def _fetch_frame(partitions: Sequence[int], **fields: Any) -> bytes:
    entries = [
        _Fetch.FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1 << 20)
        for each in partitions
    ]
    topics = [_Fetch.FetchTopic(topic=TOPIC, partitions=entries)] if entries else []
    return _frame(
        "Fetch",
        _FETCH_VERSION,
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=topics,
        **fields,
    )


def full_fetches(partitions: Sequence[int]) -> Requests:
    """Return the requests of a consumer without a session."""
    frame = _fetch_frame(partitions, session_id=0, session_epoch=-1)
    return lambda _: frame


def incremental_fetches(partitions: Sequence[int]) -> Requests:
    """Return the requests of a consumer with a session, which are full ones if it gets none."""
    full = _fetch_frame(partitions, session_id=0, session_epoch=0)
    epoch = 0

    def next_request(answer: memoryview | None) -> bytes:
        nonlocal epoch
        if answer is not None:
            _, response = decode_response("Fetch", _FETCH_VERSION, answer)
            if response.session_id and not response.error_code:
                epoch += 1
                return _fetch_frame((), session_id=response.session_id, session_epoch=epoch)
        epoch = 0
        return full

    return next_request


async def _ask(address: str, frame: bytes) -> None:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(frame)
    await reader.readexactly(_LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0])
    writer.close()


async def _create_topic(address: str, partitions: int) -> None:
    topic = _CreateTopics.CreatableTopic(
        name=TOPIC, num_partitions=partitions, replication_factor=1
    )
    await _ask(address, _frame("CreateTopics", 5, topics=[topic], timeout_ms=60_000))


async def idle(
    server: Server,
    requests: Sequence[Requests],
    warm_up_s: float,
    seconds: float,
) -> tuple[float, float, float, float]:
    """Run connections; return added MB, share of a core, and answers and bytes per second."""
    loop = asyncio.get_running_loop()
    host, port = server.address.split(":")
    before_mb = server.memory_mb()
    connections: list[Connection] = []
    for client in requests:
        _, made = await loop.create_connection(partial(Connection, client), host, int(port))
        connections.append(made)
    await asyncio.sleep(warm_up_s)
    began_s, cpu_s = time.perf_counter(), server.cpu_s()
    answers = sum(each.answers for each in connections)
    answered_bytes = sum(each.answered_bytes for each in connections)
    await asyncio.sleep(seconds)
    cpu_s, took_s = server.cpu_s() - cpu_s, time.perf_counter() - began_s
    answers = sum(each.answers for each in connections) - answers
    answered_bytes = sum(each.answered_bytes for each in connections) - answered_bytes
    added_mb = server.memory_mb() - before_mb
    for each in connections:
        each.close()
    await asyncio.sleep(0.5)
    return added_mb, cpu_s / took_s, answers / took_s, answered_bytes / took_s


async def figures_of(server: Server, options: argparse.Namespace) -> list[Figure]:
    """Return the figures of a server."""
    await _create_topic(server.address, max(PARTITIONS))
    await asyncio.sleep(2)
    has_goals = server.name == "gateway"
    count, times = options.connections, (options.warm_up_s, options.seconds)
    figures = []
    for kind, requests in (
        ("producers", [metadata_once() for _ in range(count)]),
        ("consumers", [full_fetches([each % max(PARTITIONS)]) for each in range(count)]),
    ):
        added_mb, share, answers, _ = await idle(server, requests, *times)
        named = f"{server.name}: {count} idle {kind}"
        figures.append(
            Figure(f"{named}, memory", added_mb, "MB", at_most=100 if has_goals else None)
        )
        figures.append(
            Figure(f"{named}, CPU", share * 100, "% of a core", at_most=5 if has_goals else None)
        )
        if answers:
            figures.append(Figure(f"{named}, CPU per fetch", share / answers * 1e6, "µs"))
    for partitions in PARTITIONS:
        for kind, client in (
            ("full fetches", full_fetches(range(partitions))),
            ("a fetch session", incremental_fetches(range(partitions))),
        ):
            _, share, answers, received = await idle(server, [client], *times)
            named = f"{server.name}: idle consumer of {partitions} partitions, {kind}"
            figures.append(Figure(f"{named}, CPU", share * 100, "% of a core"))
            figures.append(Figure(f"{named}, fetches", answers, "/s"))
            figures.append(Figure(f"{named}, answers", received / 1e3, "kB/s"))
    return figures


def servers(options: argparse.Namespace, stack: ExitStack) -> Iterator[Server]:
    """Start the servers, one at a time."""
    directory = stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory))
    if options.kafka:
        with KafkaBroker(Path(directory)) as broker:
            yield Server("Kafka", broker.bootstrap_servers, broker.pid)
    overrides = [argument for each in options.override for argument in ("--override", each)]
    with running_gateway(f"{directory}/root", *overrides) as (address, pid):
        yield Server("gateway", address, pid)


def measure(options: argparse.Namespace) -> Report:
    """Measure what the command line names."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        for server in servers(options, stack):
            figures += asyncio.run(figures_of(server, options))
    return Report("gateway_idle", figures)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    options = parser("gateway_idle", __doc__)
    options.add_argument("--connections", type=positive, default=1_000)
    options.add_argument("--warm-up-s", type=float, default=10.0)
    options.add_argument("--seconds", type=float, default=10.0)
    options.add_argument("--no-kafka", dest="kafka", action="store_false")
    options.add_argument(
        "--override", action="append", default=[], help="a setting of the gateway, key=value"
    )
    run(options, measure, arguments)


if __name__ == "__main__":
    sys.exit(exit_status(main))
