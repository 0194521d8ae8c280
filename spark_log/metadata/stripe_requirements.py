"""Checks that a topic can have stripes (the setting ``stripes``).

A partition of such a topic has its newest records in a stripe, which lies in the cluster's root. So
the partition has one replica, there: its copies are those of the root, if this is a quorum
(docs/adr/0088). The setting changes only together with the places of the topic's records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_log.errors import InvalidConfigurationError
from spark_log.metadata.features import STRIPE_VERSION
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    StripesRecord,
)
from spark_log.metadata.root_broker import ROOT_BROKER_ID
from spark_log.metadata.topic_image import TopicImage

_STRIPES: Final = "stripes"
_DELETE_DELAY: Final = "file.delete.delay.ms"


def check_stripes(image: MetadataImage, records: Sequence[MetadataRecord]) -> None:
    """Check a change of the metadata before it is appended.

    Args:
        image: the metadata before the change.
        records: the records of the change.

    Raises:
        InvalidConfigurationError: it changes ``stripes`` of a topic that exists as a setting alone,
            or of all topics; or after it a topic that has stripes, or gets some, has another
            replica, or ``file.delete.delay.ms`` 0; or a topic whose number of stripes changes gets
            more partitions.
    """
    is_completed = any(isinstance(record, StripesRecord) for record in records)
    for record in records:
        if isinstance(record, ConfigRecord) and record.name == _STRIPES and not is_completed:
            _check_setting(image, record)
        if isinstance(record, PartitionRecord):
            _check_does_not_move(image, record.topic_id)
    if STRIPE_VERSION.name not in image.features and not any(
        map(STRIPE_VERSION.is_needed_by, records)
    ):
        return
    if not any(map(_concerns_stripes, records)):
        return
    for topic in image.after(records).topics():
        if topic.config().stripes or topic.moving_to:
            _check_topic(topic, exists=image.find(topic.name) is not None)


def _check_setting(image: MetadataImage, record: ConfigRecord) -> None:
    if record.resource_type != TOPIC_RESOURCE:
        raise InvalidConfigurationError(
            "stripes is a setting of single topics: set it when a topic is created, with "
            "--config stripes=N",
            key=record.name,
        )
    topic = image.find(record.resource_name)
    present = "0" if topic is None else topic.overrides.get(record.name, "0")
    if topic is not None and (record.value or "0") != present:
        raise InvalidConfigurationError(
            f"topic {topic.name!r} has stripes={present}, and its records lie where this setting "
            f"says: change it with spark-log topics alter {topic.name} --stripes "
            f"{record.value or '0'}, which moves them",
            key=record.name,
        )


def _check_does_not_move(image: MetadataImage, topic_id: str) -> None:
    topic = image.find_by_id(topic_id)
    if topic is not None and topic.moving_to is not None:
        raise InvalidConfigurationError(
            f"topic {topic.name!r} is getting stripes={topic.moving_to}: add partitions afterwards",
            key=_STRIPES,
        )


def _check_topic(topic: TopicImage, *, exists: bool) -> None:
    if topic.config().file_delete_delay_ms == 0:
        raise InvalidConfigurationError(
            f"topic {topic.name!r} cannot have stripes with file.delete.delay.ms=0: what a writer "
            f"knows of a stripe counts for half of this time; set file.delete.delay.ms to its "
            f"default of 60000, or leave stripes at 0",
            key=_DELETE_DELAY,
        )
    for number, state in sorted(topic.partitions.items()):
        if tuple(state.replicas) != (ROOT_BROKER_ID,):
            raise InvalidConfigurationError(
                f"topic {topic.name!r} has stripes, which are in the cluster's root: partition "
                f"{number} stays there, on broker {ROOT_BROKER_ID}, and has the replicas of the "
                f"root: spark-log quorum add gives the root a copy"
                if exists
                else f"topic {topic.name!r} cannot have stripes: partition {number} has the "
                f"replicas {list(state.replicas)}, and a stripe is in the cluster's root and has "
                f"the replicas of the root; create the topic with one replica, on broker "
                f"{ROOT_BROKER_ID} (for copies, keep the root on a quorum: spark-log quorum add), "
                f"or leave stripes at 0",
                key=_STRIPES,
            )


def _concerns_stripes(record: MetadataRecord) -> bool:
    """Return whether a record may change which topics have stripes, or what these require."""
    if isinstance(record, ConfigRecord):
        return record.name in (_STRIPES, _DELETE_DELAY)
    return isinstance(record, PartitionRecord | PartitionChangeRecord | StripesRecord)
