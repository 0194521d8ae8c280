"""The topic that a write names by its option ``topic``: looked up, or created, on the driver."""

from __future__ import annotations

from contextlib import suppress

from spark_log.datasource.options import CREATE_TOPIC, WriteOptions
from spark_log.datasource.write.open_root import OpenRoot
from spark_log.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError


def prepare_topic(options: WriteOptions) -> None:
    """Make sure that the topics that a write names exist before a task writes.

    With the option ``createTopic``, a missing topic is created, and so is a missing root. If
    another writer creates the topic at the same time, this write uses that topic; settings of a
    topic that exists stay as they are.

    A writer calls this last, when options and columns are valid, so that a refused write leaves no
    empty topic behind.

    Raises:
        UnknownTopicOrPartitionError: the topic does not exist, and ``createTopic`` is not set; or
            a topic of ``acksByTopic`` does not exist.
        RootNotFoundError: the root does not exist, and ``createTopic`` is not set.
        InvalidTopicError, InvalidPartitionsError, InvalidConfigurationError: the topic cannot be
            created.
    """
    if options.new_topic is not None:
        from spark_log.admin import Admin  # imported here: most writes create no topic

        admin = Admin(
            options.root,
            storage_options=options.storage_options,
            broker_storage_options=options.broker_options,
        )
        with suppress(TopicAlreadyExistsError):
            admin.create_topics([options.new_topic])
        return
    with OpenRoot.acquire(options.root, options.storage_options, options.broker_options) as root:
        if options.topic is None:  # the tasks read the topics from a column
            for name in options.acks_by_topic:
                root.image.topic(name)
            return
        try:
            root.image.topic(options.topic)
        except UnknownTopicOrPartitionError as error:
            raise UnknownTopicOrPartitionError(
                f"{error} (the option {CREATE_TOPIC}=true creates a missing topic)",
                topic=error.topic,
                near=error.near,
            ) from None
