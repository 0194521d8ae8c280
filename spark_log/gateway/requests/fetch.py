"""Fetch: the records of partitions from an offset on; it waits for them if the client asks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spark_log.errors import SparkLogError
from spark_log.gateway.errors import ErrorCode, error_code
from spark_log.gateway.fetch_sessions import INVALID_SESSION_ID, CachedPartition, FetchSession
from spark_log.gateway.gateway import Gateway
from spark_log.gateway.partitions import (
    FetchedPartition,
    GatewayPartition,
    GatewayStripe,
    TailWatch,
    WaitingFetch,
)
from spark_log.gateway.protocol import message_class
from spark_log.gateway.request import Api, RequestContext
from spark_log.gateway.request_memory import ReservedMemory
from spark_log.gateway.requests.topics import leader_epoch_error, topics_of
from spark_log.log import IsolationLevel
from spark_log.metadata import TopicImage

_Response = message_class("FetchResponse")

_FIRST_WITH_ZSTD: Final = 10
_FIRST_WITH_RACK: Final = 11
_FIRST_WITH_TOPIC_IDS: Final = 13
_MAX_BYTES: Final = 57_671_680
"""Largest answer, whatever the client allows (``fetch.max.bytes`` of Kafka's brokers)."""
_READ_MS: Final = 1_000.0
"""Time in which logs are read for one answer. Batches of one record, or a slow store, may take
longer for as many bytes as the client allows than it waits for an answer: it would ask for the same
ones again and again."""
_READS_AT_ONCE: Final = 32
"""Number of partitions that are read at the same time. The others wait for the next answer if the
time is over."""


def _error_response(request: Any, code: int, message: str) -> Any:
    return _Response(error_code=code)


API = Api(1, "Fetch", 4, 18, error_response=_error_response, only_reads=True, overlaps=True)


@dataclass(slots=True, eq=False)
class _Fetch:
    """The state of the fetch of one partition.

    Attributes:
        wanted: what the client asks for.
        partition: the partition; None if there is an error.
        next_offset: the offset after the batches that were found.
        error: Kafka's error code.
        preferred_read_replica: the gateway of the client's rack, to be asked instead; -1 for none.
        fetched: the last answer of the partition.
        parts: the batches that were found.
        size_bytes: their size.
    """

    wanted: CachedPartition
    partition: GatewayPartition | None
    next_offset: int
    error: int = ErrorCode.NONE
    preferred_read_replica: int = -1
    fetched: FetchedPartition | None = None
    parts: list[bytes | bytearray] = field(default_factory=list)
    size_bytes: int = 0

    @property
    def room_bytes(self) -> int:
        """Bytes that the partition may still add to the answer."""
        return self.wanted.partition_max_bytes - self.size_bytes

    def add(self, fetched: FetchedPartition) -> int:
        """Add batches to those that were found; return their size."""
        self.fetched, self.next_offset = fetched, fetched.next_offset
        self.parts += fetched.parts
        self.size_bytes += fetched.size_bytes
        return fetched.size_bytes


async def handle(gateway: Gateway, context: RequestContext, request: Any) -> Any:
    """Answer when ``min_bytes`` can be read, a partition has an error, or ``max_wait_ms`` is over.

    A request with a session has only what changes in its partitions, and so has its answer.
    """
    uses_topic_ids = context.api_version >= _FIRST_WITH_TOPIC_IDS
    wanted = [_wanted(topic, each) for topic in request.topics for each in topic.partitions]
    sessions, now_ms = gateway.fetch_sessions, gateway.partitions.now_ms
    fetch_context = sessions.new_context(
        request.session_id,
        request.session_epoch,
        wanted,
        [
            (each.topic_id if uses_topic_ids else each.topic, partition)
            for each in request.forgotten_topics_data
            for partition in each.partitions
        ],
        uses_topic_ids=uses_topic_ids,
        now_ms=now_ms(),
    )
    if fetch_context.error:
        return _Response(error_code=fetch_context.error)
    session = fetch_context.session
    entries = request.topics if session is None else session.topics()
    images = await topics_of(gateway, entries, context.api_version, "partitions")
    topics = {
        (entry.topic, entry.topic_id): image for entry, image in zip(entries, images, strict=True)
    }
    partitions = wanted if session is None else tuple(session.partitions.values())
    fetches = [
        await _fetch_of(gateway, each, topics.get((each.topic, each.topic_id)), uses_topic_ids)
        for each in partitions
    ]
    if context.api_version >= _FIRST_WITH_RACK and request.rack_id:
        await _redirect(gateway, request.rack_id, fetches)
    await _fetch_all(gateway, context, request, fetches)
    if fetch_context.is_overtaken:
        return _Response(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
    answered = _changed(session, fetches, has_session=session or fetch_context.wants_session)
    session_id = INVALID_SESSION_ID if session is None else session.session_id
    if fetch_context.wants_session:
        session_id = sessions.maybe_create(wanted, uses_topic_ids=uses_topic_ids, now_ms=now_ms())
    return _Response(
        throttle_time_ms=gateway.partitions.quotas.throttle_ms(
            gateway.partitions.known_image,
            "consumer",
            context.client_id or "",
            sum(each.size_bytes for each in answered),
            now_ms(),
        ),
        session_id=session_id,
        responses=_by_topic(answered, request.isolation_level),
    )


def _wanted(topic: Any, entry: Any) -> CachedPartition:
    return CachedPartition(
        topic.topic,
        topic.topic_id,
        entry.partition,
        entry.fetch_offset,
        entry.partition_max_bytes,
        entry.current_leader_epoch,
    )


async def _fetch_of(
    gateway: Gateway, wanted: CachedPartition, topic: TopicImage | None, uses_topic_ids: bool
) -> _Fetch:
    """Return the fetch of a partition, with its error if it cannot be read."""
    number = wanted.partition
    partition = None if topic is None else gateway.partitions.get(topic, number)
    fetch = _Fetch(wanted, partition, wanted.fetch_offset)
    if topic is None and uses_topic_ids:
        fetch.error = ErrorCode.UNKNOWN_TOPIC_ID
    elif topic is None or partition is None:
        fetch.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif wanted.current_leader_epoch not in (-1, topic.partitions[number].leader_epoch):
        fetch.error = await leader_epoch_error(gateway, topic, number, wanted.current_leader_epoch)
    return fetch


async def _redirect(gateway: Gateway, rack: str, fetches: Sequence[_Fetch]) -> None:
    """Direct a client of another rack to the gateway of its own (KIP-392).

    As in Kafka, this gateway answers by itself if the offset is not in the log: the other gateway
    would only send the client back.
    """
    for each in fetches:
        if each.error or each.partition is None:
            continue
        topic_id, number = each.partition.topic_id, each.partition.partition
        preferred = gateway.preferred_read_replica(topic_id, number, rack)
        if preferred is None:
            continue
        try:
            each.fetched = await each.partition.at_offset(each.next_offset)
            each.preferred_read_replica = preferred.gateway_id
        except SparkLogError as error:
            each.error = error_code(error)


async def _fetch_all(
    gateway: Gateway, context: RequestContext, request: Any, fetches: Sequence[_Fetch]
) -> None:
    """Fetch all partitions; wait for appends until ``min_bytes`` are found."""
    isolation: IsolationLevel = "read_committed" if request.isolation_level else "read_uncommitted"
    # A client that does not wait for appends would never see those of other processes otherwise.
    probes = request.max_wait_ms <= 0 or request.min_bytes <= 0
    max_bytes = max(0, min(request.max_bytes, _MAX_BYTES, context.memory.max_answer_bytes))
    deadline_ms = gateway.partitions.now_ms() + request.max_wait_ms
    readable = [each for each in fetches if not each.error and each.preferred_read_replica < 0]
    partitions = [each.partition for each in readable if each.partition is not None]
    options = _ReadOptions(
        isolation,
        context.api_version >= _FIRST_WITH_ZSTD,
        probes,
        gateway.partitions.tail_watch,
        gateway.partitions.now_ms,
    )
    await options.poll_stripes(partitions)
    is_complete = len(readable) < len(fetches) or not fetches
    waiting = WaitingFetch()
    for partition in partitions:
        partition.add_waiting(waiting)
    try:
        while True:
            waiting.clear()
            memory = _AnswerMemory(context.memory, deadline_ms, gateway.partitions.now_ms)
            await _read(readable, max_bytes, memory, options)
            if is_complete or any(each.error for each in readable):
                return
            size_bytes = sum(each.size_bytes for each in readable)
            left_ms = deadline_ms - gateway.partitions.now_ms()
            if size_bytes >= request.min_bytes or left_ms <= 0:
                return
            if any(each.fetched is not None and each.fetched.is_late for each in readable):
                return
            if gateway.partitions.is_draining:
                return
            gateway.partitions.tail_watch.watch(partitions)
            if not await waiting.wait(left_ms / 1000):
                return
    finally:
        for partition in partitions:
            partition.remove_waiting(waiting)


@dataclass(frozen=True, slots=True)
class _ReadOptions:
    """Options for reading the partitions of a request.

    Attributes:
        isolation: ``read_committed`` ends at the last stable offset.
        takes_zstd: whether the client can decompress zstd.
        probes: whether to look for the appends of others at the end of a log.
        tail_watch: looks for them while a fetch waits.
        now_ms: returns monotonic time.
        polled: the stripes that were polled for this request.
    """

    isolation: IsolationLevel
    takes_zstd: bool
    probes: bool
    tail_watch: TailWatch
    now_ms: Callable[[], float]
    polled: set[GatewayStripe] = field(default_factory=set)

    def probes_now(self, partition: GatewayPartition, now_ms: float) -> bool:
        """Return whether to look for the appends of others to a partition."""
        if partition.stripe in self.polled:
            return False
        return self.probes or self.tail_watch.is_neglected(partition, now_ms)

    async def poll_stripes(self, partitions: Sequence[GatewayPartition]) -> None:
        """Look for the appends of others to partitions of stripes, where that is due.

        A stripe that cannot be read is left to its partitions, which then have its error.
        """
        now_ms = self.now_ms()
        stripes = {
            each.stripe: None
            for each in partitions
            if each.stripe is not None and self.probes_now(each, now_ms)
        }
        if not stripes:
            return
        polls = await asyncio.gather(*(each.poll() for each in stripes), return_exceptions=True)
        for stripe, error in zip(stripes, polls, strict=True):
            if error is None:
                self.polled.add(stripe)
            elif not isinstance(error, SparkLogError):
                raise error


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
    options: _ReadOptions,
) -> None:
    """Read partitions in the order of the request, as many at the same time as their limits allow.

    As in Kafka the first batch that is found is returned whole, also above all limits, and a batch
    after it only within them: librdkafka cannot read an answer that is larger than it asked for.
    Without memory or time for more the answer has what was found before that.
    """
    now_ms = options.now_ms()
    left_bytes = max_bytes - sum(each.size_bytes for each in fetches)
    has_any = left_bytes < max_bytes
    waiting = deque(each for each in fetches if _may_have_more(each, options, now_ms))
    max_read_ms = _READ_MS / max(1, len(waiting))
    while waiting and (left_bytes > 0 or not has_any):
        if has_any and options.now_ms() >= now_ms + _READ_MS:
            return
        group: list[_Fetch] = []
        reserved_bytes = 0
        while (
            waiting
            and len(group) < _READS_AT_ONCE
            and (not group or reserved_bytes + waiting[0].room_bytes <= left_bytes)
        ):
            group.append(waiting.popleft())
            reserved_bytes += max(0, group[-1].room_bytes)
        limit_bytes = max(1, left_bytes)
        reserved_bytes = min(max(1, reserved_bytes), limit_bytes)
        if not await memory.reserve(reserved_bytes, has_any=has_any):
            return
        read = [_read_one(each, limit_bytes, options, now_ms, max_read_ms) for each in group]
        found = await asyncio.gather(*read) if len(read) > 1 else [await read[0]]
        added_bytes = 0
        for each, fetched in zip(group, found, strict=True):
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


def _may_have_more(fetch: _Fetch, options: _ReadOptions, now_ms: float) -> bool:
    """Return whether a partition has to be read; take the answer of one that is at its end."""
    if fetch.parts and fetch.room_bytes <= 0:
        return False
    partition = fetch.partition
    assert partition is not None
    at_end = partition.fetch_at_end(fetch.next_offset, options.isolation)
    if at_end is None or options.probes_now(partition, now_ms):
        return True
    fetch.fetched = at_end
    return False


async def _read_one(
    fetch: _Fetch, left_bytes: int, options: _ReadOptions, now_ms: float, max_read_ms: float
) -> FetchedPartition | None:
    """Return what the partition has next; None if it has an error."""
    partition = fetch.partition
    assert partition is not None
    most_bytes = max(1, min(fetch.room_bytes, left_bytes))
    try:
        return await partition.fetch(
            fetch.next_offset,
            most_bytes,
            options.isolation,
            takes_zstd=options.takes_zstd,
            probes=options.probes_now(partition, now_ms),
            max_read_ms=max_read_ms,
        )
    except SparkLogError as error:
        fetch.error = error_code(error)
        return None


# --- the answer ----------------------------------------------------------------------------------


def _offsets(fetch: _Fetch) -> tuple[int, int, int]:
    """Return the log start offset, high watermark and last stable offset of an answer."""
    fetched, partition = fetch.fetched, fetch.partition
    if fetched is not None:
        return fetched.log_start_offset, fetched.high_watermark, fetched.last_stable_offset
    if partition is not None and partition.end_offset >= 0:
        return partition.log_start_offset, partition.end_offset, -1
    return -1, -1, -1


def _changed(
    session: FetchSession | None, fetches: Sequence[_Fetch], *, has_session: object
) -> Sequence[_Fetch]:
    """Return the partitions that the answer needs: all of a full fetch, else those that changed."""
    if not has_session:
        return fetches
    changed = []
    for each in fetches:
        start, end, _ = _offsets(each)
        is_changed = each.wanted.answer(
            error_code=each.error,
            high_watermark=end,
            log_start_offset=start,
            must_respond=bool(each.parts) or each.preferred_read_replica >= 0,
        )
        if is_changed:
            changed.append(each)
    if session is None:
        return fetches
    for each in changed:
        session.move_to_end(each.wanted)
    return changed


def _by_topic(fetches: Sequence[_Fetch], isolation_level: int) -> list[Any]:
    """Return the answers of partitions; successive ones of a topic together."""
    responses: list[Any] = []
    last: CachedPartition | None = None
    for each in fetches:
        wanted = each.wanted
        if last is None or (wanted.topic, wanted.topic_id) != (last.topic, last.topic_id):
            responses.append(
                _Response.FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id)
            )
        responses[-1].partitions.append(_partition_data(each, isolation_level))
        last = wanted
    return responses


def _partition_data(fetch: _Fetch, isolation_level: int) -> Any:
    start, end, stable = _offsets(fetch)
    parts = () if fetch.error else fetch.parts
    return _Response.PartitionData(
        partition_index=fetch.wanted.partition,
        error_code=fetch.error,
        high_watermark=end,
        last_stable_offset=stable,
        log_start_offset=start,
        aborted_transactions=[] if isolation_level else None,
        preferred_read_replica=fetch.preferred_read_replica,
        records=parts[0] if len(parts) == 1 else b"".join(parts),
    )
