"""All groups of the consumer protocol (KIP-848) that a gateway coordinates, with their timers.

The rules are those of Kafka's ``GroupMetadataManager.consumerGroupHeartbeat``. A heartbeat without
news is answered from memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from spark_log.coordinator import (
    ConsumerMember,
    Group,
    GroupLog,
    GroupRecord,
    GroupTopic,
    Member,
    OffsetsTable,
    begin_generation,
    check_regex,
    leave_static,
    note_named,
    release_revoked,
    remove_consumers,
    subscribe_consumer,
    update_consumer_topics,
)
from spark_log.errors import CommitFailedError, IllegalGenerationError, SparkLogError
from spark_log.gateway.groups.classic_decisions import MemberIdentity
from spark_log.gateway.groups.consumer_heartbeat import (
    FENCING,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    RefusedError,
    by_topic_id,
    check_epoch,
    check_instance,
    check_join,
    commit_error,
    continued,
    known_member,
    not_coordinator,
)
from spark_log.gateway.groups.consumer_statements import ConsumerStatements
from spark_log.gateway.groups.coordinated_consumer_group import (
    CoordinatedConsumerGroup,
    DecideGroup,
)
from spark_log.gateway.groups.coordinated_group import ForeignMembersError, GroupLostError
from spark_log.gateway.groups.group_coordinators import (
    GroupRefusedError,
    RunBlocking,
    check_coordinator,
)
from spark_log.gateway.groups.group_state import GroupError
from spark_log.gateway.groups.group_timers import (
    CallLater,
    CancelTimer,
    GroupTimers,
    TimerKey,
)
from spark_log.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from spark_log.cluster import Cluster
    from spark_log.config import ClusterConfig, GroupConfig
    from spark_log.metadata import MetadataImage

CHECK_INTERVAL_MS = 10_000
"""Time between two looks at a group's topics, and at its log: within it, members get new partitions
and are told that another gateway has taken the group. Their commits are refused at once."""

MAX_COMMIT_TRIES = 5

_CHECK = ("check", "")
_SESSION, _REBALANCE = "session", "rebalance"

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Join:
    """A join that has no answer yet, and no later request of its member but repeats.

    Attributes:
        request: the request.
        answer: the answer.
        is_repeated: whether it was repeated since the log was read.
    """

    request: ConsumerHeartbeat
    answer: asyncio.Future[ConsumerHeartbeatAnswer]
    is_repeated: bool = False


@dataclass(slots=True)
class _Entry:
    """A group in memory.

    Attributes:
        log: reads and writes the group.
        group: the group; None before it is loaded, and after it was lost.
        config: the cluster's settings when the group was loaded.
        group_config: the group's settings by the metadata that were read last.
        lock: held during an event.
        timers: its timers.
        statements: by member, what it was told and has said.
        has_written: whether the group's newest record is of this gateway, since it loaded the
            group. Another gateway that tells members of what it did not give writes one first.
    """

    log: CoordinatedConsumerGroup
    timers: GroupTimers = field(init=False)
    group: Group | None = None
    config: ClusterConfig | None = None
    group_config: GroupConfig | None = None
    statements: dict[str, ConsumerStatements] = field(default_factory=dict)
    has_written: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ConsumerGroups:
    """Coordinates the groups of the consumer protocol of one gateway. For one event loop.

    Two gateways that coordinate one group do no harm, as with `GroupCoordinators`.
    """

    def __init__(
        self,
        cluster: Cluster,
        run_blocking: RunBlocking,
        *,
        is_coordinator: Callable[[str], bool] = lambda _: True,
        finalize_feature: Callable[[], None] = lambda: None,
        call_later: CallLater | None = None,
    ) -> None:
        """Return the coordinators; nothing is read yet.

        Args:
            cluster: the opened root.
            run_blocking: runs calls that read or write the log.
            is_coordinator: whether clients are sent to this gateway for a group; called on any
                thread.
            finalize_feature: called before the first record of Kafka's clients in a root; blocks.
            call_later: sets a timer; by default the event loop's.
        """
        self._cluster = cluster
        self._run_blocking = run_blocking
        self._is_coordinator = is_coordinator
        self._finalize_feature = finalize_feature
        self._call_later = call_later
        self._entries: dict[str, _Entry] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._joins: dict[tuple[str, str], _Join] = {}
        self._is_closed = False

    @cached_property
    def _table(self) -> OffsetsTable:
        return OffsetsTable(self._cluster)

    def has_loaded(self, group_id: str) -> bool:
        """Return whether a group is in memory; such a group has members."""
        entry = self._entries.get(group_id)
        return entry is not None and entry.group is not None

    # --- requests of members ---------------------------------------------------------------------

    async def heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        """Return the answer to a heartbeat, after the group's log has what it says.

        The repeat of a join that has no answer yet gets the same answer. Joins that take longer
        than their clients wait would else be made again and again, each for a client that waits for
        the next one.
        """
        key = group_id, request.member.member_id
        join = self._joins.get(key)
        if join is not None and join.request == request:
            join.is_repeated = True
            return await asyncio.shield(join.answer)
        self._joins.pop(key, None)  # a join after this request is one of its own
        if request.epoch != JOIN_EPOCH:
            return await self._heartbeat(group_id, request)
        join = _Join(request, asyncio.get_running_loop().create_future())
        self._joins[key] = join
        answer = ConsumerHeartbeatAnswer(GroupError.COORDINATOR_NOT_AVAILABLE)
        try:
            answer = await self._heartbeat(group_id, request, join)
        finally:
            join.answer.set_result(answer)
            if self._joins.get(key) is join:
                del self._joins[key]
        return answer

    async def _heartbeat(
        self, group_id: str, request: ConsumerHeartbeat, join: _Join | None = None
    ) -> ConsumerHeartbeatAnswer:
        try:
            async with _Use(self, group_id) as entry:
                try:
                    if request.epoch == JOIN_EPOCH:
                        await self._join(group_id, entry, request)
                    elif request.epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                        await self._leave(group_id, entry, request)
                        return ConsumerHeartbeatAnswer(GroupError.NONE, epoch=request.epoch)
                    else:
                        await self._continue(group_id, entry, request)
                except RefusedError as refused:
                    await self._check_refusal(group_id, entry, refused.error)
                    raise
                while join is not None and join.is_repeated:
                    join.is_repeated = False
                    await self._check(group_id, entry)  # as of after the repeat
                return await self._answer(group_id, entry, request)
        except RefusedError as refused:
            return ConsumerHeartbeatAnswer(refused.error, refused.message)

    async def remove(
        self, group_id: str, identities: Sequence[MemberIdentity]
    ) -> tuple[GroupError, ...]:
        """Remove members for an administrator, and return for each why it was not removed.

        As in Kafka's ``consumerGroupLeave``, a static member is named by its instance id, and its
        member id may be left out. The others have their partitions at once: a removed member is
        fenced at its next heartbeat.

        Raises:
            GroupRefusedError: the group cannot be used here.
        """
        try:
            async with _Use(self, group_id) as entry:
                return tuple(
                    [await self._remove_named(group_id, entry, each) for each in identities]
                )
        except RefusedError as refused:
            if refused.error is not GroupError.GROUP_ID_NOT_FOUND:
                raise GroupRefusedError(refused.error) from None
            return (GroupError.UNKNOWN_MEMBER_ID,) * len(identities)  # it is a classic group

    async def _remove_named(
        self, group_id: str, entry: _Entry, identity: MemberIdentity
    ) -> GroupError:
        members = {} if entry.group is None else entry.group.members  # none is left
        name = identity.member_id
        if identity.instance_id is not None:
            found = [
                each.member_id
                for each in members.values()
                if each.instance_id == identity.instance_id
            ]
            if found and name not in ("", *found):
                return GroupError.FENCED_INSTANCE_ID
            name = found[0] if found else ""
        if name not in members:
            return GroupError.UNKNOWN_MEMBER_ID
        await self._remove(group_id, entry, name, "removal by an administrator")
        return GroupError.NONE

    async def check_member(
        self, group_id: str, member_id: str, epoch: int, instance_id: str | None = None
    ) -> GroupError:
        """Return why a member may not commit or fetch offsets with an epoch; NONE if it may."""
        try:
            async with _Use(self, group_id) as entry:
                error = commit_error(_loaded(entry), member_id, epoch, instance_id)
                await self._check_refusal(group_id, entry, error)
                return error
        except RefusedError as refused:
            return refused.error

    async def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        is_coordinator: Callable[[str], bool] | None = None,
    ) -> GroupError:
        """Commit offsets, all of them or none; durable on return. Return why they are refused.

        Args:
            group_id: the group's id.
            member_id: the member's id.
            instance_id: its instance id; None without one.
            epoch: the epoch that it knows.
            offsets: the offsets.
            is_coordinator: whether this gateway has coordinated the group since the request
                arrived; called before each try, on any thread.

        Raises:
            SparkLogError: see `OffsetsTable.commit`.
        """
        for _ in range(MAX_COMMIT_TRIES):
            try:
                async with _Use(self, group_id) as entry:
                    group = _loaded(entry)
                    error = commit_error(group, member_id, epoch, instance_id, offsets)
                    await self._check_refusal(group_id, entry, error)
                if error is not GroupError.NONE or not offsets:
                    return error
                try:
                    check = partial(
                        check_coordinator, is_coordinator or self._is_coordinator, group_id
                    )
                    await self._run_blocking(entry.log.commit, group, member_id, offsets, check)
                    return GroupError.NONE
                except CommitFailedError:
                    return GroupError.COORDINATOR_NOT_AVAILABLE
                except IllegalGenerationError:
                    # The group has changed: does the member still have its epoch?
                    async with entry.lock:
                        await self._check(group_id, entry)
            except RefusedError as refused:
                return refused.error
        return GroupError.COORDINATOR_NOT_AVAILABLE

    def close(self) -> None:
        """End all timers, and tell members to find another coordinator."""
        self._is_closed = True
        for group_id, entry in list(self._entries.items()):
            self._lose(group_id, entry)

    # --- events ----------------------------------------------------------------------------------

    async def _join(self, group_id: str, entry: _Entry, request: ConsumerHeartbeat) -> None:
        group, member = _loaded(entry), request.member
        assert entry.config is not None
        assert entry.group_config is not None
        check_join(group, member, entry.config.group_max_size)
        if member.member_id in group.members:
            # Its client has lost its membership, or an answer: it reads nothing of what it was to
            # revoke.
            name = member.member_id
            await self._write(group_id, entry, lambda now, _: release_revoked(now, name))
        wanted = ConsumerMember(0, 0, request.topics or (), request.regex or None, request.assignor)
        await self._subscribe(
            group_id,
            entry,
            replace(
                member,
                session_timeout_ms=entry.group_config.consumer_session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms or 0,
            ),
            wanted,
        )
        if member.instance_id and (holder := group.instances.get(member.instance_id)):
            _end_timers(entry, holder.member_id)
        entry.statements[member.member_id] = ConsumerStatements()  # it has abandoned all

    async def _continue(self, group_id: str, entry: _Entry, request: ConsumerHeartbeat) -> None:
        group, name = _loaded(entry), request.member.member_id
        owned = check_epoch(group, request)
        await self._subscribe(group_id, entry, *continued(group, request))
        revoking = _loaded(entry).members[name].revoking
        if entry.statements[name].on_heartbeat(request, owned, revoking):
            await self._write(group_id, entry, lambda now, _: release_revoked(now, name))

    async def _subscribe(
        self, group_id: str, entry: _Entry, member: Member, wanted: ConsumerMember
    ) -> None:
        group = _loaded(entry)
        before = None if group.consumer is None else group.consumer.members.get(member.member_id)
        regex = wanted.regex
        if regex is not None and (before is None or regex != before.regex):
            try:
                await self._run_blocking(check_regex, regex)
            except ValueError as error:
                raise RefusedError(
                    GroupError.INVALID_REGULAR_EXPRESSION,
                    f"the regular expression {regex!r} is not one of RE2: {error}",
                ) from None
        if before is not None:
            after = before.with_subscription(wanted)
            present = group.members[member.member_id]
            same = replace(
                member,
                topics=present.topics,
                assignors=present.assignors,
                owned=present.owned,
                revoking=present.revoking,
                pending=present.pending,
            )
            if after == before and same == present:
                return  # a heartbeat without news reads and writes nothing
        await self._write(
            group_id,
            entry,
            lambda now, topics: subscribe_consumer(now, member, wanted, topics),
        )

    async def _leave(self, group_id: str, entry: _Entry, request: ConsumerHeartbeat) -> None:
        group, member = _loaded(entry), request.member
        name = member.member_id
        if request.epoch == LEAVE_STATIC_EPOCH or member.instance_id is not None:
            check_instance(group, name, member.instance_id)
        known_member(group, name)
        if request.epoch == LEAVE_STATIC_EPOCH:
            await self._write(group_id, entry, lambda now, topics: leave_static(now, name, topics))
        else:
            await self._remove(group_id, entry, name, "leave")

    async def _remove(self, group_id: str, entry: _Entry, name: str, change: str) -> None:
        await self._write(
            group_id, entry, lambda now, topics: remove_consumers(now, [name], topics, change)
        )
        _end_timers(entry, name)
        if not _loaded(entry).members:
            self._lose(group_id, entry)  # nothing to remember

    async def _answer(
        self, group_id: str, entry: _Entry, request: ConsumerHeartbeat
    ) -> ConsumerHeartbeatAnswer:
        name = request.member.member_id
        # A client that knows the group's epoch knows its partitions. Another one may have lost the
        # answer in which it was told of them.
        is_known = request.epoch == _loaded(entry).generation and not request.is_full
        if not is_known:
            await self._before_telling(group_id, entry, name)
        group = _loaded(entry)
        assert entry.group_config is not None
        member = group.members[name]
        entry.timers.set((_SESSION, name), entry.group_config.consumer_session_timeout_ms)
        # While it has partitions to revoke, it keeps its epoch (UNREVOKED_PARTITIONS).
        epoch = group.generation
        if member.revoking:
            epoch = max(request.epoch, known_member(group, name).epoch)
            # As in Kafka its time begins when it is told, not when the other member joined.
            if (_REBALANCE, name) not in entry.timers:
                entry.timers.set((_REBALANCE, name), member.rebalance_timeout_ms)
        if not is_known:
            entry.statements[name].on_answer(member)
        return ConsumerHeartbeatAnswer(
            GroupError.NONE,
            None,
            epoch,
            entry.group_config.consumer_heartbeat_interval_ms,
            None if is_known else by_topic_id(group, member.owned),
        )

    async def _before_telling(self, group_id: str, entry: _Entry, name: str) -> None:
        """Write a record before a member is told of partitions that it may not know.

        The gateway before this one may still have the group in memory, and would take them from the
        member at once, as nobody had told it of them. Now it cannot write any more.
        """
        owned = _loaded(entry).members[name].owned
        if not entry.has_written and not owned <= entry.statements[name].named:
            await self._write(group_id, entry, lambda now, _: begin_generation(now))

    async def _write(self, group_id: str, entry: _Entry, decide: DecideGroup) -> None:
        known = _loaded(entry)
        named = {name: each.named for name, each in entry.statements.items()}

        def decide_next(now: Group, topics: Mapping[str, GroupTopic]) -> GroupRecord | None:
            return decide(note_named(now, named), topics)

        try:
            entry.group = await self._run_blocking(entry.log.write, decide_next, known)
        except GroupLostError:
            self._lose(group_id, entry)
            raise not_coordinator() from None
        except asyncio.CancelledError:
            # The thread continues: no later event may use this object beside it.
            self._lose(group_id, entry)
            raise
        except SparkLogError as error:
            _log.warning("group %s: a change was not written: %s", group_id, error)
            self._lose(group_id, entry)
            raise RefusedError(GroupError.COORDINATOR_NOT_AVAILABLE, str(error)) from None
        group = entry.group
        if entry.log.image is not None:
            entry.group_config = entry.log.image.group_config(group_id)
        if group is known:
            return
        entry.has_written = True
        _log.debug("group %s: generation %d, %s", group_id, group.generation, group.state)
        for name, member in group.members.items():
            if not member.revoking:
                entry.timers.end((_REBALANCE, name))

    # --- loading ---------------------------------------------------------------------------------

    async def _load(self, group_id: str, entry: _Entry) -> None:
        try:
            image, group = await self._run_blocking(self._read, entry)
        except ForeignMembersError:
            self._lose(group_id, entry)
            raise RefusedError(
                GroupError.GROUP_ID_NOT_FOUND,
                f"group {group_id} is not a consumer group: it has members of another kind. Take "
                f"another group id, or stop them first",
            ) from None
        except GroupLostError:
            self._lose(group_id, entry)
            raise not_coordinator() from None
        except SparkLogError as error:
            self._lose(group_id, entry)
            _log.warning("group %s cannot be loaded: %s", group_id, error)
            raise RefusedError(GroupError.COORDINATOR_NOT_AVAILABLE, str(error)) from None
        except asyncio.CancelledError:
            self._lose(group_id, entry)
            raise
        if self._is_closed:
            raise not_coordinator()
        entry.group, entry.config = group, image.cluster_config()
        entry.group_config = image.group_config(group_id)
        session_timeout_ms = entry.group_config.consumer_session_timeout_ms
        for name, member in group.members.items():
            entry.statements[name] = ConsumerStatements.loaded(
                member, known_member(group, name).named
            )
            entry.timers.set((_SESSION, name), session_timeout_ms)
            if member.revoking:
                entry.timers.set((_REBALANCE, name), member.rebalance_timeout_ms)
        entry.timers.set(_CHECK, CHECK_INTERVAL_MS)

    def _read(self, entry: _Entry) -> tuple[MetadataImage, Group]:
        return self._cluster.image(), entry.log.load()

    def _entry(self, group_id: str) -> _Entry:
        entry = self._entries.get(group_id)
        if self._is_closed or not self._is_coordinator(group_id):
            if entry is not None:
                self._lose(group_id, entry)
            raise not_coordinator()
        if entry is None:
            entry = self._entries[group_id] = _Entry(self._open_group(group_id))
            expire = partial(self._expire, group_id, entry)
            entry.timers = GroupTimers(expire, self._call_later, self._tasks)
        return entry

    def _open_group(self, group_id: str) -> CoordinatedConsumerGroup:
        return CoordinatedConsumerGroup(
            GroupLog(self._cluster.store, group_id, self._cluster.clock),
            self._table,
            group_id,
            read_image=self._cluster.image,
            finalize_feature=self._finalize_feature,
        )

    def _lose(self, group_id: str, entry: _Entry) -> None:
        """Forget a group: the next request loads it again."""
        if self._entries.get(group_id) is entry:
            del self._entries[group_id]
        entry.group = None
        entry.timers.end_all()

    # --- timers ----------------------------------------------------------------------------------

    async def _expire(
        self, group_id: str, entry: _Entry, key: TimerKey, timer: CancelTimer
    ) -> None:
        kind, name = key
        async with entry.lock:
            if not entry.timers.take(key, timer) or entry.group is None:
                return  # a heartbeat came first
            try:
                if not self._is_coordinator(group_id):
                    self._lose(group_id, entry)  # its members may live, and go to another gateway
                elif key == _CHECK:
                    await self._write(group_id, entry, update_consumer_topics)
                    entry.timers.set(_CHECK, CHECK_INTERVAL_MS)
                elif name in entry.group.members:
                    _log.info("group %s: %s ends by its %s timeout", group_id, name, kind)
                    await self._remove(group_id, entry, name, "expire")
            except RefusedError as refused:
                _log.debug("group %s: timer %s ended in vain: %s", group_id, key, refused.message)

    async def _check_refusal(self, group_id: str, entry: _Entry, error: GroupError) -> None:
        """Check, before a member is fenced, that no other gateway knows better."""
        if error in FENCING:
            await self._check(group_id, entry)

    async def _check(self, group_id: str, entry: _Entry) -> None:
        """Check that this gateway still coordinates a group, whose lock the caller holds."""
        if entry.group is None:
            raise not_coordinator()
        try:
            await self._run_blocking(entry.log.check, entry.group)
        except GroupLostError:
            self._lose(group_id, entry)
            raise not_coordinator() from None
        except SparkLogError as error:
            raise RefusedError(GroupError.COORDINATOR_NOT_AVAILABLE, str(error)) from None
        except asyncio.CancelledError:
            self._lose(group_id, entry)
            raise


class _Use:
    """The use of a group by one request, after the requests before it."""

    def __init__(self, groups: ConsumerGroups, group_id: str) -> None:
        self._groups = groups
        self._group_id = group_id
        self._entry: _Entry | None = None

    async def __aenter__(self) -> _Entry:
        groups, group_id = self._groups, self._group_id
        while True:
            entry = groups._entry(group_id)
            await entry.lock.acquire()
            try:
                if groups._entries.get(group_id) is not entry:
                    entry.lock.release()
                    continue  # it was lost while this request waited
                if entry.group is None:
                    await groups._load(group_id, entry)
            except BaseException:
                entry.lock.release()
                raise
            self._entry = entry
            return entry

    async def __aexit__(self, *_: object) -> None:
        entry = self._entry
        assert entry is not None
        if entry.group is not None and not entry.group.members:
            self._groups._lose(self._group_id, entry)  # nothing to remember
        entry.lock.release()


def _end_timers(entry: _Entry, name: str) -> None:
    entry.statements.pop(name, None)
    entry.timers.end((_SESSION, name))
    entry.timers.end((_REBALANCE, name))


def _loaded(entry: _Entry) -> Group:
    if entry.group is None:
        raise not_coordinator()
    return entry.group
