"""The stripe of a split: the driver names it, and the tasks of one process share what they read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_log.storage import Store

if TYPE_CHECKING:
    from spark_log.log.stripe import StripeReader

_MAX_READERS: Final = 64
"""Maximum number of stripes whose directories a process keeps; the least recently used are dropped.
"""

_Key = tuple[str, tuple[tuple[str, str], ...], "SplitStripe"]

_readers: OrderedDict[_Key, StripeReader] = OrderedDict()
"""Readers of the stripes that this process has read. Spark reuses its Python processes, and the
records of many splits are in one stripe: each object's directory is read once for all of them."""


@dataclass(frozen=True, slots=True)
class SplitStripe:
    """The stripe that has a partition's newest records. Pickled to the tasks.

    Attributes:
        topic_id: id of the topic.
        path: the stripe's directory below the cluster's root.
        number: number of the stripe.
        file_delete_delay_ms: ``file.delete.delay.ms`` of the topic, for half of which a process may
            rely on what it knows of a stripe.
    """

    topic_id: str
    path: str
    number: int
    file_delete_delay_ms: int

    def reader(self, store: Store, storage_options: Mapping[str, str]) -> StripeReader:
        """Return what this process has read of the stripe. Accesses no storage yet.

        Args:
            store: the store of the cluster's root.
            storage_options: the options of its file system.
        """
        key = store.url, tuple(sorted(storage_options.items())), self
        found = _readers.get(key)
        if found is None:
            # Imported here: most topics have no stripes.
            from spark_log.config import TopicConfig
            from spark_log.log.stripe import StripeDirectory, StripeReader

            directory = StripeDirectory(
                store,
                self.path,
                topic_id=self.topic_id,
                stripe=self.number,
                config=TopicConfig(file_delete_delay_ms=self.file_delete_delay_ms),
            )
            found = _readers[key] = StripeReader(directory)
            while len(_readers) > _MAX_READERS:
                _readers.popitem(last=False)
        _readers.move_to_end(key)
        return found
