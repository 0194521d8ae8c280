"""`GroupTranslation`: copies committed offsets of consumer groups from one side to the other."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from spark_log.errors import GroupNotEmptyError
from spark_log.mirror.kafka import KafkaCluster
from spark_log.mirror.mirror_settings import LogAddress
from spark_log.mirror.mirrored_partition import MirroredPartition, Side
from spark_log.mirror.offsets.offset_syncs import OffsetSyncStore
from spark_log.types import OffsetAndMetadata, TopicPartition

_log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class TranslatedGroup:
    """The result for one group.

    Attributes:
        group_id: the id of the group.
        offsets: the offsets that were committed, by partition of the target.
        waiting: the partitions of the source whose committed offset is not mirrored yet.
        is_active: whether the group has members on the target, so that nothing was committed.
    """

    group_id: str
    offsets: Offsets = field(default_factory=dict)
    waiting: tuple[TopicPartition, ...] = ()
    is_active: bool = False

    def document(self) -> dict[str, object]:
        """Return the result for JSON."""
        return {
            "group": self.group_id,
            "active": self.is_active,
            "offsets": [
                {"topic": tp.topic, "partition": tp.partition, "offset": each.offset}
                for tp, each in sorted(self.offsets.items())
            ],
            "waiting": [{"topic": tp.topic, "partition": tp.partition} for tp in self.waiting],
        }


class GroupTranslation:
    """Commits the offsets of groups of one side on the other side (KIP-545).

    A consumer that moves to the other side continues at exactly the record that it would have read
    next. Offsets of a group with members on the target are not changed. No offset is moved back.
    """

    def __init__(self, kafka: KafkaCluster, log: LogAddress, groups: Iterable[re.Pattern[str]]):
        """Return a translation; neither side is accessed yet.

        Args:
            kafka: the Kafka cluster.
            log: the log.
            groups: regular expressions for whole group ids.
        """
        self._kafka = kafka
        self._log = log
        self._patterns = tuple(groups)

    def translate(
        self, offset_syncs: OffsetSyncStore, source: Side, *, dry_run: bool = False
    ) -> list[TranslatedGroup]:
        """Commit the offsets of all groups of the source that match.

        Args:
            offset_syncs: the offset syncs of both directions.
            source: the side that has the offsets.
            dry_run: whether to commit nothing.

        Returns:
            The groups with offsets in mirrored partitions, sorted by id.
        """
        admin = self._log.admin()
        if source is Side.KAFKA:
            names = list(self._kafka.groups())
            active: Mapping[str, bool] = {}
        else:
            names = [each.group_id for each in admin.list_groups()]
            active = self._kafka.groups()
        results = []
        for group_id in sorted(names):
            if not any(each.fullmatch(group_id) for each in self._patterns):
                continue
            if source is Side.KAFKA:
                offsets = self._kafka.group_offsets(group_id)
                present: Offsets = admin.list_group_offsets(group_id)
            else:
                offsets = admin.list_group_offsets(group_id)
                present = self._kafka.group_offsets(group_id) if group_id in active else {}
            result = _translated(group_id, offsets, offset_syncs, source)
            if not result.offsets and not result.waiting:
                continue
            ahead = {
                tp: each
                for tp, each in result.offsets.items()
                if tp not in present or present[tp].offset < each.offset
            }
            result = replace(result, offsets=ahead, is_active=active.get(group_id, False))
            if result.is_active:
                result = replace(result, offsets={})
            elif ahead and not dry_run:
                result = self._commit(result, source.other)
            results.append(result)
        return results

    def _commit(self, result: TranslatedGroup, target: Side) -> TranslatedGroup:
        try:
            if target is Side.KAFKA:
                self._kafka.alter_group_offsets(result.group_id, result.offsets)
            else:
                self._log.admin().alter_group_offsets(result.group_id, result.offsets)
        except GroupNotEmptyError:
            _log.info(
                "group %s has members on the target: its offsets were not changed", result.group_id
            )
            return replace(result, offsets={}, is_active=True)
        _log.debug(
            "group %s: committed offsets of %d partitions to %s",
            result.group_id,
            len(result.offsets),
            target.name,
        )
        return result


def _translated(
    group_id: str, offsets: Offsets, offset_syncs: OffsetSyncStore, source: Side
) -> TranslatedGroup:
    """Return a group's offsets on the other side, and the partitions that are not mirrored yet."""
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    waiting = []
    by_topic: dict[str, dict[int, list[MirroredPartition]]] = {}
    for tp, committed in sorted(offsets.items()):
        if tp.topic not in by_topic:
            by_topic[tp.topic] = offset_syncs.of_topic(tp.topic, source)
        for partition in by_topic[tp.topic].get(tp.partition, ()):
            there = offset_syncs[partition].translate(committed.offset, source)
            if there is None:
                waiting.append(tp)
                continue
            moved = TopicPartition(partition.topic(source.other), tp.partition)
            found[moved] = OffsetAndMetadata(there, committed.metadata)
    return TranslatedGroup(group_id, found, tuple(waiting))
