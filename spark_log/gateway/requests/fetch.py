"""Fetch: the records of partitions from an offset on; it waits for them if the client asks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.partitions import FetchedPartition, GatewayPartition
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.request_memory import ReservedMemory
from spark_log.gateway.requests.topics import leader_epoch_error, topics_of
from spark_log.log import IsolationLevel

_Response = message_class("FetchResponse")

_FIRST_WITH_ZSTD: Final = 10
_FIRST_WITH_TOPIC_IDS: Final = 13
_MAX_BYTES: Final = 57_671_680
"""Largest answer, whatever the client allows (``fetch.max.bytes`` of Kafka's brokers)."""


def _error_response(request: Any, code: int, message: str) -> Any:
    return _Response(error_code=code)


API = Api(1, "Fetch", 4, 18, error_response=_error_response, only_reads=True, overlaps=True)


@dataclass(slots=True)
class _Fetch:
    """The state of the fetch of one partition.

    Attributes:
        request: the partition's entry in the request.
        partition: the partition; None if there is an error.
        next_offset: the offset after the batches that were found.
        error: Kafka's error code.
        fetched: the last answer of the partition.
        parts: the batches that were found.
        size_bytes: their size.
    """

    request: Any
    partition: GatewayPartition | None
    next_offset: int
    error: int = ErrorCode.NONE
    fetched: FetchedPartition | None = None
    parts: list[bytes | bytearray] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def room_bytes(self) -> int:
        """Bytes that the partition may still add to the answer."""
        return int(self.request.partition_max_bytes) - self.size_bytes

    def add(self, fetched: FetchedPartition) -> int:
        """Add batches to those that were found; return their size."""
        self.fetched, self.next_offset = fetched, fetched.next_offset
        self.parts += fetched.parts
        self.size_bytes += fetched.size_bytes
        return fetched.size_bytes


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer when ``min_bytes`` can be read, a partition has an error, or ``max_wait_ms`` is over.

    The gateway keeps no fetch sessions: it answers with the session id 0, and clients then ask for
    all of their partitions each time (KIP-227).
    """
    if request.session_id:
        return _Response(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    topics = await topics_of(gateway, request.topics, context.api_version, "partitions")
    fetches: list[list[_Fetch]] = []
    for topic, entry in zip(topics, request.topics, strict=True):
        found = []
        for each in entry.partitions:
            partition = None if topic is None else gateway.partitions.get(topic, each.partition)
            fetch = _Fetch(each, partition, each.fetch_offset)
            if topic is None and context.api_version >= _FIRST_WITH_TOPIC_IDS:
                fetch.error = ErrorCode.UNKNOWN_TOPIC_ID
            elif topic is None or partition is None:
                fetch.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                fetch.error = await leader_epoch_error(
                    gateway, topic, each.partition, each.current_leader_epoch
                )
            found.append(fetch)
        fetches.append(found)
    await _fetch_all(gateway, context, request, [each for found in fetches for each in found])
    size_bytes = sum(each.size_bytes for found in fetches for each in found)
    return _Response(
        throttle_time_ms=gateway.partitions.quotas.throttle_ms(
            gateway.partitions.known_image,
            "consumer",
            context.client_id or "",
            size_bytes,
            gateway.partitions.now_ms(),
        ),
        responses=[
            _Response.FetchableTopicResponse(
                topic=entry.topic,
                topic_id=entry.topic_id,
                partitions=[_partition_data(each, request.isolation_level) for each in found],
            )
            for entry, found in zip(request.topics, fetches, strict=True)
        ],
    )


async def _fetch_all(
    gateway: Gateway, context: RequestContext, request: Any, fetches: Sequence[_Fetch]
) -> None:
    """Fetch all partitions; wait for appends until ``min_bytes`` are found."""
    isolation: IsolationLevel = "read_committed" if request.isolation_level else "read_uncommitted"
    # A client that does not wait for appends would never see those of other processes otherwise.
    probes = request.max_wait_ms <= 0 or request.min_bytes <= 0
    takes_zstd = context.api_version >= _FIRST_WITH_ZSTD
    max_bytes = max(0, min(request.max_bytes, _MAX_BYTES, context.memory.max_answer_bytes))
    deadline_ms = gateway.partitions.now_ms() + request.max_wait_ms
    readable = [each for each in fetches if not each.error and each.partition is not None]
    partitions = [each.partition for each in readable if each.partition is not None]
    changed = asyncio.Event()
    for partition in partitions:
        partition.wait_with(changed)
    try:
        while True:
            changed.clear()
            memory = _AnswerMemory(context.memory, deadline_ms, gateway.partitions.now_ms)
            await _read(
                readable, max_bytes, memory, isolation, takes_zstd=takes_zstd, probes=probes
            )
            size_bytes = sum(each.size_bytes for each in readable)
            left_ms = deadline_ms - gateway.partitions.now_ms()
            if size_bytes >= request.min_bytes or left_ms <= 0 or any(e.error for e in fetches):
                return
            gateway.partitions.tail_watch.watch(partitions)
            try:
                await asyncio.wait_for(changed.wait(), left_ms / 1000)
            except TimeoutError:
                return
    finally:
        for partition in partitions:
            partition.stop_waiting_with(changed)


@dataclass(frozen=True, slots=True)
class _AnswerMemory:
    """The memory of the answer.

    A fetch waits for memory only as long as it may wait for records, and only while it has none of
    them: so fetches cannot wait for each other.
    """

    reserved: ReservedMemory
    deadline_ms: float
    now_ms: Callable[[], float]

    async def reserve(self, size_bytes: int, *, has_any: bool) -> bool:
        left_ms = 0.0 if has_any else self.deadline_ms - self.now_ms()
        return await self.reserved.reserve(size_bytes, left_ms / 1000)


async def _read(
    fetches: Sequence[_Fetch],
    max_bytes: int,
    memory: _AnswerMemory,
    isolation: IsolationLevel,
    *,
    takes_zstd: bool,
    probes: bool,
) -> None:
    """Read partitions in the order of the request, as many at the same time as their limits allow.

    As in Kafka the first batch that is found is returned whole, also above all limits, and a batch
    after it only within them: librdkafka cannot read an answer that is larger than it asked for.
    Without memory for more the answer has what was found before that.
    """
    left_bytes = max_bytes - sum(each.size_bytes for each in fetches)
    has_any = left_bytes < max_bytes
    waiting = deque(each for each in fetches if not each.parts or each.room_bytes > 0)
    while waiting and (left_bytes > 0 or not has_any):
        group: list[_Fetch] = []
        reserved_bytes = 0
        while waiting and (not group or reserved_bytes + waiting[0].room_bytes <= left_bytes):
            group.append(waiting.popleft())
            reserved_bytes += max(0, group[-1].room_bytes)
        limit_bytes = max(1, left_bytes)
        reserved_bytes = min(max(1, reserved_bytes), limit_bytes)
        if not await memory.reserve(reserved_bytes, has_any=has_any):
            return
        read = (
            _read_one(each, limit_bytes, isolation, takes_zstd=takes_zstd, probes=probes)
            for each in group
        )
        added_bytes = 0
        for each, fetched in zip(group, await asyncio.gather(*read), strict=True):
            if fetched is None:
                continue
            if has_any and fetched.size_bytes > min(each.room_bytes, left_bytes):
                each.fetched = fetched  # only its offsets
                if fetched.size_bytes > left_bytes:
                    waiting.clear()  # the answer is full
                continue
            size_bytes = each.add(fetched)
            added_bytes += size_bytes
            left_bytes -= size_bytes
            has_any = has_any or size_bytes > 0
        memory.reserved.change(added_bytes - reserved_bytes)


async def _read_one(
    fetch: _Fetch,
    left_bytes: int,
    isolation: IsolationLevel,
    *,
    takes_zstd: bool,
    probes: bool,
) -> FetchedPartition | None:
    """Return what the partition has next; None if it has an error."""
    assert fetch.partition is not None
    most_bytes = max(1, min(fetch.room_bytes, left_bytes))
    try:
        return await fetch.partition.fetch(
            fetch.next_offset, most_bytes, isolation, takes_zstd=takes_zstd, probes=probes
        )
    except SparkLogError as error:
        fetch.error = error_code(error)
        return None


def _partition_data(fetch: _Fetch, isolation_level: int) -> Any:
    fetched, partition = fetch.fetched, fetch.partition
    start, end, stable = -1, -1, -1
    if fetched is not None:
        start, end = fetched.log_start_offset, fetched.high_watermark
        stable = fetched.last_stable_offset
    elif partition is not None and partition.end_offset >= 0:
        start, end, stable = partition.log_start_offset, partition.end_offset, -1
    parts = () if fetch.error else fetch.parts
    return _Response.PartitionData(
        partition_index=fetch.request.partition,
        error_code=fetch.error,
        high_watermark=end,
        last_stable_offset=stable,
        log_start_offset=start,
        aborted_transactions=[] if isolation_level else None,
        records=parts[0] if len(parts) == 1 else b"".join(parts),
    )
