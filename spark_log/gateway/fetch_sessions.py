"""Fetch sessions (KIP-227): a client sends only what has changed of its fetch, and gets only that.

A session has the partitions of one client, what it asks for in each, and what it was told of each
last. Sessions are memory alone: after a restart, at another gateway, or when a session had to make
room, the client gets an error, and sends its whole fetch again.

The rules are those of Kafka's ``FetchSession.scala``. A gateway has no followers, so no session is
privileged.
"""

from __future__ import annotations

import logging
import random
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from spark_log.gateway.errors import ErrorCode

_log = logging.getLogger(__name__)

INVALID_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
"""Epoch of a full fetch that asks for a session."""
FINAL_EPOCH: Final = -1
"""Epoch of a full fetch that wants none."""

EVICTION_MS: Final = 120_000.0
"""Time for which a session must be unused, or, for a larger one, must exist, to make room. Kafka's
``MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS``."""

MAX_CACHED_PARTITIONS: Final = 200_000
"""Maximum number of partitions in all sessions, about 75 MB. A session that would grow beyond it is
closed, and none is created: Kafka bounds the number of sessions alone, and a client could fill the
memory with names of partitions that do not exist."""

_INT_MAX: Final = 2**31 - 1

PartitionKey = tuple[str, int]
"""The name of a topic (up to version 12) or its id, and a partition's number."""


@dataclass(slots=True, eq=False)
class CachedPartition:
    """A partition of a session: the fetch of its client, and the offsets in the last answer.

    Attributes:
        topic: the topic's name; empty in versions with ids.
        topic_id: the topic's id; zero in versions with names.
        partition: the partition's number.
        fetch_offset: the first offset that the client needs.
        partition_max_bytes: the most bytes of the partition.
        current_leader_epoch: the epoch that the client knows; -1 if it knows none.
        high_watermark: the high watermark in the last answer; -1 to answer in any case.
        log_start_offset: the log start offset in the last answer.
    """

    topic: str
    topic_id: str
    partition: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int
    high_watermark: int = -1
    log_start_offset: int = -1

    def ask(self, wanted: CachedPartition) -> None:
        """Take what the client asks for now."""
        self.fetch_offset = wanted.fetch_offset
        self.partition_max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch

    def answer(
        self,
        *,
        error_code: int,
        high_watermark: int,
        log_start_offset: int,
        must_respond: bool,
    ) -> bool:
        """Take what the client is told; return whether an incremental answer needs the partition.

        Args:
            error_code: the error of the partition. After one, the next answer has the partition.
            high_watermark: the high watermark.
            log_start_offset: the log start offset.
            must_respond: whether there are records, or another gateway to read from.
        """
        is_changed = (
            must_respond
            or error_code != ErrorCode.NONE
            or high_watermark != self.high_watermark
            or log_start_offset != self.log_start_offset
        )
        self.high_watermark = -1 if error_code else high_watermark
        self.log_start_offset = log_start_offset
        return is_changed


@dataclass(slots=True)
class CachedTopic:
    """The partitions of one topic in a session, as a fetch of them all would have them."""

    topic: str
    topic_id: str
    partitions: list[CachedPartition]


@dataclass(slots=True, eq=False)
class FetchSession:
    """A session.

    Attributes:
        session_id: its id, which clients name it by.
        partitions: its partitions; those that were answered last are at the end.
        uses_topic_ids: whether its client names topics by their ids.
        created_ms: monotonic time of its creation.
        used_ms: monotonic time of its last use.
        epoch: the epoch that the next request must have.
        cached_size: the number of partitions that the cache counts.
    """

    session_id: int
    partitions: dict[PartitionKey, CachedPartition]
    uses_topic_ids: bool
    created_ms: float
    used_ms: float
    epoch: int = 1
    cached_size: int = 0
    _topics: list[CachedTopic] | None = field(default=None, repr=False)

    def update(
        self, wanted: Sequence[CachedPartition], forgotten: Collection[PartitionKey]
    ) -> None:
        """Take what a request changes.

        Args:
            wanted: the partitions that are new, or that the client asks something else of.
            forgotten: the keys of partitions that the client needs no longer.
        """
        for each in wanted:
            key = key_of(each, uses_topic_ids=self.uses_topic_ids)
            found = self.partitions.get(key)
            if found is None:
                self.partitions[key] = each
                self._topics = None
            else:
                found.ask(each)
        for key in forgotten:
            if self.partitions.pop(key, None) is not None:
                self._topics = None

    def topics(self) -> Sequence[CachedTopic]:
        """Return the partitions by topic; the list is kept until partitions come or go."""
        if self._topics is None:
            topics: dict[tuple[str, str], CachedTopic] = {}
            for each in self.partitions.values():
                key = each.topic, each.topic_id
                found = topics.get(key)
                if found is None:
                    found = topics[key] = CachedTopic(each.topic, each.topic_id, [])
                found.partitions.append(each)
            self._topics = list(topics.values())
        return self._topics

    def move_to_end(self, partition: CachedPartition) -> None:
        """Read a partition after all others next time: they have not been answered."""
        key = key_of(partition, uses_topic_ids=self.uses_topic_ids)
        if self.partitions.pop(key, None) is not None:
            self.partitions[key] = partition


@dataclass(frozen=True, slots=True)
class FetchContext:
    """The session that a request uses.

    Attributes:
        error: the error of the session; NONE without one.
        session: the session of an incremental fetch; None for a full one.
        epoch: the epoch of the request; -1 if a full fetch wants no session.
    """

    error: ErrorCode
    session: FetchSession | None
    epoch: int

    @property
    def wants_session(self) -> bool:
        """Whether a full fetch asks for a session."""
        return self.session is None and self.epoch == INITIAL_EPOCH

    @property
    def is_overtaken(self) -> bool:
        """Whether another request has used the session since: a client sends one at a time."""
        return self.session is not None and self.session.epoch != _next_epoch(self.epoch)


class FetchSessions:
    """The sessions of a gateway, for one event loop.

    Attributes:
        partitions: the number of partitions in all sessions.
        evictions: the number of sessions that had to make room.
    """

    def __init__(
        self,
        slots: int,
        *,
        choose_id: random.Random | None = None,
        eviction_ms: float = EVICTION_MS,
    ) -> None:
        """Return a cache without sessions.

        Args:
            slots: the maximum number of sessions; 0 for none.
            choose_id: chooses the ids of sessions.
            eviction_ms: see `EVICTION_MS`.
        """
        self._slots = slots
        self._choose_id = choose_id or random.SystemRandom()
        self._eviction_ms = eviction_ms
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the longest unused first
        # Sizes and ids of the sessions that are old enough to make room for a larger one.
        self._evictable: list[tuple[int, int]] = []
        self.partitions = 0
        self.evictions = 0

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def new_context(
        self,
        session_id: int,
        epoch: int,
        wanted: Sequence[CachedPartition],
        forgotten: Collection[PartitionKey],
        *,
        uses_topic_ids: bool,
        now_ms: float,
    ) -> FetchContext:
        """Return the context of a request; change the session that it names.

        Args:
            session_id: the id of the session; 0 for none.
            epoch: the epoch of the session. A full fetch has 0, or -1; it closes the session.
            wanted: the partitions in the request.
            forgotten: the keys of partitions to forget.
            uses_topic_ids: whether the request names topics by their ids.
            now_ms: monotonic time.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(session_id)
            return FetchContext(ErrorCode.NONE, None, epoch)
        session = self._sessions.get(session_id)
        if session is None:
            return FetchContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, None, epoch)
        error = ErrorCode.NONE
        if session.epoch != epoch:
            error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        elif session.uses_topic_ids != uses_topic_ids:
            error = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if error:
            return FetchContext(error, None, epoch)
        session.update(wanted, forgotten)
        return self._context(session, epoch, now_ms)

    def _context(self, session: FetchSession, epoch: int, now_ms: float) -> FetchContext:
        """Return the context of a request of a session; close a session that cannot continue."""
        grown = len(session.partitions) - session.cached_size
        if grown > 0 and self.partitions + grown > MAX_CACHED_PARTITIONS:
            _log.debug("fetch session %d had to close: too many partitions", session.session_id)
            self._remove(session.session_id)
            self.evictions += 1
            return FetchContext(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, None, epoch)
        if not session.partitions:
            self._remove(session.session_id)
            return FetchContext(ErrorCode.NONE, None, FINAL_EPOCH)
        self._touch(session, now_ms)
        session.epoch = _next_epoch(epoch)
        return FetchContext(ErrorCode.NONE, session, epoch)

    def maybe_create(
        self, partitions: Sequence[CachedPartition], *, uses_topic_ids: bool, now_ms: float
    ) -> int:
        """Create a session, and return its id; 0 if there is no room.

        Args:
            partitions: the partitions, with what their client is told of them.
            uses_topic_ids: whether the client names topics by their ids.
            now_ms: monotonic time.
        """
        by_key = {key_of(each, uses_topic_ids=uses_topic_ids): each for each in partitions}
        has_memory = self.partitions + len(by_key) <= MAX_CACHED_PARTITIONS
        if not has_memory or not self._has_slot(len(by_key), now_ms):
            return INVALID_SESSION_ID
        session_id = self._choose_id.randint(1, _INT_MAX)
        while session_id in self._sessions:
            session_id = self._choose_id.randint(1, _INT_MAX)
        session = FetchSession(session_id, by_key, uses_topic_ids, now_ms, now_ms)
        self._sessions[session_id] = session
        self._touch(session, now_ms)
        _log.debug("fetch session %d has %d partitions", session_id, len(by_key))
        return session_id

    # --- room ------------------------------------------------------------------------------------

    def _has_slot(self, size: int, now_ms: float) -> bool:
        """Return whether there is a slot; make room if a session may have to go.

        That is one that was not used for long, or the smallest one, if it is smaller and not new.
        """
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > self._eviction_ms:
            evicted_id = oldest.session_id
        elif self._evictable and size > self._evictable[0][0]:
            evicted_id = self._evictable[0][1]
        else:
            return False
        self._remove(evicted_id)
        self.evictions += 1
        return True

    def _touch(self, session: FetchSession, now_ms: float) -> None:
        session.used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        self._forget_size(session)
        session.cached_size = len(session.partitions)
        self.partitions += session.cached_size
        if now_ms - session.created_ms > self._eviction_ms:
            insort(self._evictable, (session.cached_size, session.session_id))

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._forget_size(session)

    def _forget_size(self, session: FetchSession) -> None:
        self.partitions -= session.cached_size
        key = session.cached_size, session.session_id
        index = bisect_left(self._evictable, key)
        if index < len(self._evictable) and self._evictable[index] == key:
            del self._evictable[index]


def key_of(partition: CachedPartition, *, uses_topic_ids: bool) -> PartitionKey:
    """Return the key of a partition in its session."""
    return (partition.topic_id if uses_topic_ids else partition.topic), partition.partition


def _next_epoch(epoch: int) -> int:
    """Return the epoch after another one: they begin again at 1."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _INT_MAX else epoch + 1
