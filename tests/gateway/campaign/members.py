"""Members of groups, of librdkafka and of kafka-python, and what happens to them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import confluent_kafka
import kafka
from kafka import ConsumerRebalanceListener, KafkaConsumer

from spark_log import TopicPartition
from spark_log.testing.history import Polled
from tests.gateway.campaign.client import REQUEST_TIMEOUT_MS, Client
from tests.gateway.campaign.producers import RDKAFKA
from tests.gateway.campaign.readers import PASSING, python_polls
from tests.gateway.campaign.topics import EVENTS

SESSION_MS = 8_000

CLASSIC = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 500}
CONSUMER = {"group.protocol": "consumer"}

Kind = Literal["assigned", "revoked", "lost", "polled", "committed", "refused"]


@dataclass(frozen=True)
class MemberEvent:
    """Something that happened to a member of a group.

    Attributes:
        group: the group's id.
        member: the name of the member.
        kind: what happened. A commit that is not acknowledged is ``refused``; it may be made.
        at_s: when the member learned of it, by the clock of this machine.
        began_s: when the commit or the poll began; ``at_s`` for others.
        offsets: the partitions. With ``polled``: the first offset, with ``committed`` the offset.
        ends: with ``polled``, the offset after the last record.
    """

    group: str
    member: str
    kind: Kind
    at_s: float
    began_s: float
    offsets: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)


class Member(Client):
    """A member of a group, which commits after each poll.

    Attributes:
        group: the group's id.
        events: what has happened.
    """

    group: str
    events: list[MemberEvent]

    def __init__(self, place, name, group):
        super().__init__(place, name)
        self.group = group
        self.events = []

    def note(
        self,
        kind: Kind,
        offsets: Mapping[TopicPartition, int] | Sequence[TopicPartition],
        began_s: float | None = None,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Note an event of now."""
        now_s = time.time()
        if not isinstance(offsets, Mapping):
            offsets = dict.fromkeys(offsets, -1)
        began_s = now_s if began_s is None else began_s
        self.events.append(
            MemberEvent(self.group, self.name, kind, now_s, began_s, offsets, ends or {})
        )

    def note_polled(self, notes, records, began_s):
        """Note the records of a poll, and return the offsets to commit."""
        notes.poll(*records)
        first = {each.topic_partition: each.offset for each in reversed(records)}
        ends = {each.topic_partition: each.offset + 1 for each in records}
        self.note("polled", first, began_s, ends)
        return ends


class RdkafkaMember(Member):
    """A consumer of librdkafka, of the classic protocol or of KIP-848."""

    def __init__(self, place, name, group, config):
        super().__init__(place, name, group)
        self._config = config

    def run(self, notes):
        def ours(partitions):
            return [TopicPartition(each.topic, each.partition) for each in partitions]

        def on_assign(_, partitions):
            notes.assign(ours(partitions))
            self.note("assigned", ours(partitions))

        consumer = confluent_kafka.Consumer(
            {
                **RDKAFKA,
                "bootstrap.servers": self.place.bootstrap,
                "client.id": self.name,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **self._config,
            }
        )
        consumer.subscribe(
            [EVENTS],
            on_assign=on_assign,
            on_revoke=lambda _, partitions: self.note("revoked", ours(partitions)),
            on_lost=lambda _, partitions: self.note("lost", ours(partitions)),
        )
        while not self.is_ending.is_set():
            began_s = time.time()
            messages = consumer.consume(100, timeout=0.3)
            records: list[Polled] = []
            for each in messages:
                self._take(each, records)
            if records:
                self._commit(consumer, self.note_polled(notes, records, began_s))
        consumer.close()

    def _take(self, message, records):
        if message.error() is None:
            partition = TopicPartition(message.topic(), message.partition())
            records.append(Polled(partition, message.offset(), message.value().decode()))
        elif message.error().name() not in PASSING:
            self.on_error(message.error())

    def on_error(self, error):
        """Handle an error that a poll returned: none is expected but the loss of membership."""
        if error.name() not in ("_MAX_POLL_EXCEEDED", "UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"):
            self.fail(str(error))

    def _commit(self, consumer, offsets):
        began_s = time.time()
        wanted = [
            confluent_kafka.TopicPartition(each.topic, each.partition, offset)
            for each, offset in offsets.items()
        ]
        try:
            done = consumer.commit(offsets=wanted, asynchronous=False)
        except confluent_kafka.KafkaException:
            self.note("refused", offsets, began_s)
            return  # they are read again, by this member or by another one
        acknowledged = {
            TopicPartition(each.topic, each.partition): each.offset
            for each in done
            if each.error is None
        }
        self.note("committed", acknowledged, began_s)


class PythonMember(Member):
    """A consumer of kafka-python, of the classic protocol.

    It keeps its position in a partition that it had before a rebalance and has after it, although
    another member may have had it in a generation between them, of which it got no assignment.
    """

    def run(self, notes):
        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned):
                found = [TopicPartition(*each) for each in assigned]
                notes.assign(found)
                member.note("assigned", found)

            def on_partitions_revoked(self, revoked):
                # It is called before the member asks to join again, and so before it learns that
                # it had expired: nobody can tell whether the partitions were still its own.
                member.note("lost", [TopicPartition(*each) for each in revoked])

            def on_partitions_lost(self, lost):
                member.note("lost", [TopicPartition(*each) for each in lost])

        def open_consumer():
            consumer = KafkaConsumer(
                bootstrap_servers=list(self.place.addresses),
                client_id=self.name,
                group_id=self.group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=500,
                request_timeout_ms=max(REQUEST_TIMEOUT_MS, SESSION_MS + 1000),
                metadata_max_age_ms=2000,
                reconnect_backoff_max_ms=500,
            )
            consumer.subscribe([EVENTS], listener=Listener())
            return consumer

        began_s = time.time()
        for consumer, records in python_polls(self, open_consumer):
            if records:
                self._commit(consumer, self.note_polled(notes, records, began_s))
            if self.is_ending.is_set():
                return
            began_s = time.time()

    def _commit(self, consumer, offsets):
        began_s = time.time()
        wanted = {
            kafka.TopicPartition(*each): kafka.OffsetAndMetadata(offset, "", -1)
            for each, offset in offsets.items()
        }
        try:
            consumer.commit(wanted)
        except kafka.errors.KafkaError:
            self.note("refused", offsets, began_s)
            return
        self.note("committed", offsets, began_s)
