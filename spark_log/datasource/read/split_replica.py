"""A replica that a Spark task can read: the driver chooses it, and the task opens it."""

from __future__ import annotations

from dataclasses import dataclass

from spark_log.datasource.options import ReadOptions
from spark_log.datasource.read.split_stripe import SplitStripe
from spark_log.log import LogReader
from spark_log.metadata import ROOT_BROKER_ID
from spark_log.storage import StorageOptions, open_store


@dataclass(frozen=True, slots=True)
class SplitReplica:
    """A replica of a partition, where the driver knew it. Pickled to the tasks.

    Attributes:
        broker_id: the broker that has it.
        root: URL of the broker's root.
        directory: directory of the replica below this root.
    """

    broker_id: int
    root: str
    directory: str

    def open(
        self,
        topic_id: str,
        partition: int,
        options: ReadOptions,
        stripe: SplitStripe | None = None,
    ) -> LogReader:
        """Return a reader of the replica's log, without reading the metadata.

        Args:
            topic_id: the topic's id.
            partition: number of the partition.
            options: the query's options, with the storage options of the brokers.
            stripe: the stripe of a striped partition; None for a partition log.
        """
        storage_options: StorageOptions | None = options.storage_options
        if self.broker_id != ROOT_BROKER_ID:
            from spark_log.cluster import storage_options_of  # late: most splits have no replica

            storage_options = storage_options_of(
                self.broker_id,
                self.root,
                options.broker_options,
                options.root,
                options.storage_options,
            )
        store = open_store(self.root, storage_options)
        if stripe is not None:
            from spark_log.log.stripe import open_striped  # late: most topics have no stripes

            reader = stripe.reader(store, options.storage_options)
            return open_striped(store, self.directory, reader, partition=partition)
        return LogReader.open(store, self.directory, topic_id=topic_id, partition=partition)
