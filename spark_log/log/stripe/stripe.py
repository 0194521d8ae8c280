"""`Stripe`: one stripe as one process uses it, with all of its threads and partitions."""

from __future__ import annotations

from typing import ClassVar

from spark_log.log.stripe.directory import StripeDirectory
from spark_log.log.stripe.group_commit import GroupCommit
from spark_log.log.stripe.home import OpenPartition, TakenHome, take_home
from spark_log.log.stripe.reader import StripeReader


class Stripe:
    """One stripe as one process uses it. Thread-safe.

    The logs of all its partitions share the puts of their appends, and the requests at its end.

    Attributes:
        directory: the stripe's directory.
        appends: puts the entries of all threads.
        reader: what was read of the stripe.
        files_at_home: returns the directory of a partition's records at home.
    """

    reader_class: ClassVar[type[StripeReader]] = StripeReader
    appends_class: ClassVar[type[GroupCommit]] = GroupCommit
    """The classes of its parts. A subclass may have others."""

    def __init__(self, directory: StripeDirectory, open_partition: OpenPartition) -> None:
        """Access no storage yet.

        Args:
            directory: the stripe's directory.
            open_partition: returns the directory of a partition's records at home.
        """
        self.directory = directory
        self.files_at_home = open_partition
        self.appends = self.appends_class(directory)
        self.reader = self.reader_class(directory)

    def __repr__(self) -> str:
        return f"<Stripe path={self.directory.path!r}>"

    def take_home(self) -> TakenHome | None:
        """Take home the objects behind the newest home marker (`take_home`)."""
        return take_home(self.directory, self.files_at_home)
