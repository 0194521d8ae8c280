"""Changes of a topic's number of stripes: the records that begin one, and that complete it.

Between the two the records of the topic stay where they are, while each partition gets the barrier
of its next leader epoch. With the second record the topic has its new stripes, and each partition
this leader epoch (protocol P9).
"""

from __future__ import annotations

from spark_log.config import TopicConfig
from spark_log.errors import InvalidConfigurationError
from spark_log.metadata.image import MetadataImage
from spark_log.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    StripesRecord,
)
from spark_log.metadata.topic_image import TopicImage


def begin_stripes_change(image: MetadataImage, name: str, stripes: int) -> list[MetadataRecord]:
    """Return the records that begin to change a topic's number of stripes.

    Args:
        image: the present metadata.
        name: the topic's name.
        stripes: the new number; 0 for a log of its own for each partition.

    Returns:
        The records; none if the topic has this number of stripes, or is getting it.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        InvalidConfigurationError: the number is not allowed, or the topic is getting another one.
    """
    topic = image.topic(name)
    TopicConfig.parse({"stripes": str(stripes)})
    if topic.moving_to not in (None, stripes):
        raise InvalidConfigurationError(
            f"topic {name!r} is getting stripes={topic.moving_to}; complete that first, with "
            f"spark-log topics alter {name} --stripes {topic.moving_to}",
            key="stripes",
        )
    if topic.moving_to == stripes or len(topic.stripes) == stripes:
        return []
    return [
        StripesRecord(topic_id=topic.topic_id, first_stripe=topic.first_stripe, moving_to=stripes)
    ]


def complete_stripes_change(image: MetadataImage, changed: TopicImage) -> list[MetadataRecord]:
    """Return the records that complete the change of a topic's number of stripes.

    Args:
        image: the present metadata.
        changed: the topic during the change, all of whose barriers were put.

    Returns:
        The records; none if the topic was deleted, or another process has completed the change.
    """
    topic_id = changed.topic_id
    topic = image.find_by_id(topic_id)
    if topic is None or not is_same_change(topic, changed):
        return []
    return [
        StripesRecord(topic_id=topic_id, first_stripe=stripes_after_change(topic).start),
        ConfigRecord(
            resource_type=TOPIC_RESOURCE,
            resource_name=topic.name,
            name="stripes",
            value=str(topic.moving_to),
        ),
        *(
            PartitionChangeRecord(topic_id=topic_id, partition_id=number, isr=partition.isr)
            for number, partition in sorted(topic.partitions.items())
        ),
    ]


def is_same_change(topic: TopicImage, changed: TopicImage) -> bool:
    """Return whether a topic is in the same change as before: another one may have begun since."""

    def change(image: TopicImage) -> tuple[object, ...]:
        epochs = {number: each.leader_epoch for number, each in image.partitions.items()}
        return image.moving_to, image.first_stripe, image.stripes, epochs

    return topic.moving_to is not None and change(topic) == change(changed)


def stripes_after_change(topic: TopicImage) -> range:
    """Return the numbers of the stripes that a topic is getting: none that it has had.

    The first one is a multiple of their number, so that partition p is in a stripe whose number is
    p modulo the number of stripes, as well.
    """
    count, unused = topic.moving_to or 0, topic.stripes.stop
    first = -(-unused // count) * count if count else unused
    return range(first, first + count)
