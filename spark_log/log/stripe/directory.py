"""The directory of one stripe: its files in a listing, and how each is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_log.config import TopicConfig
from spark_log.errors import (
    CorruptRecordError,
    LogTruncatedError,
    NotFoundError,
    SparkLogError,
    StripesChangedError,
)
from spark_log.log.files import ExistenceMarker
from spark_log.log.stripe.file_names import StripeFileName, stripe_of
from spark_log.log.stripe.home_marker import decode_home
from spark_log.log.stripe.state import StripeState
from spark_log.log.stripe.stripe_object import StripeObject
from spark_log.storage import (
    FileInfo,
    Store,
    is_listing_valid,
    listing_validity_ms,
    newest_modified_us,
)
from spark_log.types import StripeDescription
from spark_log.util import IN_PROCESS, SYSTEM_CLOCK, Clock, SuppressedErrors


@dataclass(frozen=True, slots=True)
class StripeListing:
    """The files that one listing of a stripe shows.

    Attributes:
        files: each file, with the parts of its name.
        newest_us: the newest last-modified time, microseconds since the epoch: the storage's time,
            or an earlier one. 0 without files.
    """

    files: tuple[tuple[StripeFileName, FileInfo], ...]
    newest_us: int

    @classmethod
    def of(cls, files: Sequence[FileInfo]) -> StripeListing:
        """Return what a listing shows.

        Args:
            files: the files of the stripe's directory.
        """
        named = ((StripeFileName.parse(file.name), file) for file in files)
        return cls(
            tuple((name, file) for name, file in named if name is not None),
            newest_modified_us(files),
        )

    @property
    def home_number(self) -> int:
        """Number of the newest home marker; 0 without one."""
        return max((name.number for name, _ in self.files if name.is_home), default=0)

    @property
    def end_number(self) -> int:
        """The number after the last listed object; 0 without one."""
        return max((name.number + 1 for name, _ in self.files if not name.is_home), default=0)

    @property
    def behind_home(self) -> list[tuple[int, FileInfo]]:
        """Number and file of each object that is not at home, in their order."""
        home = self.home_number
        return sorted(
            (name.number, file)
            for name, file in self.files
            if not name.is_home and name.number >= home
        )


class StripeDirectory:
    """The directory of one stripe, as one process accesses it.

    Attributes:
        store: the store that holds the stripe.
        path: the stripe's directory, relative to the store's root (`stripe_path`).
        topic_id: the topic's id; checked against every file.
        stripe: number of the stripe; checked against every file.
        config: the topic's settings.
        clock: the clock whose monotonic time dates what is known.
        valid_ms: time for which a listing is valid: half of ``file.delete.delay.ms``.
        check_root: function that raises a `StorageError` if the root was emptied.
        check_stripes: called when the stripe has ended; raises a `StripesChangedError` if the
            topic has other stripes now.
        suppressed: counter of errors that fail no append.
    """

    def __init__(
        self,
        store: Store,
        path: str,
        *,
        topic_id: str,
        stripe: int,
        config: TopicConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        has_existence_marker: bool = False,
        check_root: Callable[[], None] = lambda: None,
        check_stripes: Callable[[], None] = lambda: None,
        suppressed: SuppressedErrors = IN_PROCESS,
    ) -> None:
        """Access no storage yet.

        Args:
            store: the store that holds the stripe.
            path: the stripe's directory, relative to the store's root.
            topic_id: the topic's id.
            stripe: number of the stripe.
            config: the topic's settings; None for the defaults.
            clock: the clock whose monotonic time dates what is known.
            has_existence_marker: whether a file outside of the directory shows that the stripe has
                had objects, so that the removal of all of its files is noticed.
            check_root: called before the put of the first object; it raises a `StorageError` if the
                root was emptied.
            check_stripes: called when the stripe is found to have ended; it raises a
                `StripesChangedError` if the topic has other stripes now.
            suppressed: counter of errors that fail no append.
        """
        self.check_root = check_root
        self.check_stripes = check_stripes
        self._existence_marker = ExistenceMarker(path) if has_existence_marker else None
        self.suppressed = suppressed
        self.store = store
        self.path = path
        self.topic_id = topic_id
        self.stripe = stripe
        self.config = config or TopicConfig()
        self.clock = clock
        self.valid_ms = listing_validity_ms(self.config.file_delete_delay_ms)

    def __repr__(self) -> str:
        return f"<StripeDirectory url='{self.store.url}/{self.path}'>"

    def file_path(self, number: int, *, is_home: bool = False) -> str:
        """Return the path of an object, or of the home marker with the state before it."""
        return f"{self.path}/{StripeFileName(number, is_home).file_name}"

    def is_outdated(self, observed_ms: float) -> bool:
        """Return whether a number may have been used and freed since it was known to be unused.

        Args:
            observed_ms: monotonic time at which the number was unused (protocol P3).
        """
        return not is_listing_valid(self.clock, observed_ms, self.valid_ms)

    def list(self) -> StripeListing:
        """List the stripe.

        Raises:
            StorageError: the storage does not answer.
        """
        return StripeListing.of(tuple(self.store.list(self.path)))

    def has_had_objects(self) -> bool:
        """Return whether an existence marker shows that the stripe has had objects.

        Raises:
            StorageError: the storage does not answer.
        """
        return self._existence_marker is not None and self._existence_marker.exists(self.store)

    def create_existence_marker(self) -> None:
        """Create the existence marker of a stripe that has just got its first object.

        This is done before the object is acknowledged. After an error the stripe has no marker:
        then only processes that knew the stripe notice that all of its files are gone.
        """
        if self._existence_marker is not None:
            with self.suppressed.suppress("witness", self.path, SparkLogError):
                self._existence_marker.create(self.store)

    def check_partition(self, partition: int) -> None:
        """Check that a partition is in this stripe.

        Raises:
            ValueError: it is in another stripe of the topic.
        """
        number = self.stripe_of(partition)
        if number != self.stripe:
            raise ValueError(
                f"{self.path}: partition {partition} is in stripe {number} of "
                f"{self.config.stripes}: append to that stripe"
            )

    def stripe_of(self, partition: int) -> int:
        """Return the number of the stripe that a partition is in, among those of this one's time.

        Args:
            partition: number of the partition.

        Returns:
            The number; this stripe's if the topic's number of stripes is not known.
        """
        stripes = self.config.stripes
        if not stripes:
            return self.stripe
        return self.stripe - stripe_of(self.stripe, stripes) + stripe_of(partition, stripes)

    def truncated(self, end_number: int, reached: int) -> LogTruncatedError:
        """Return the error for a stripe that ends before a number that it had reached."""
        what = f"ends at object {end_number}" if end_number else "is empty"
        return LogTruncatedError(
            f"{self.path}: the stripe {what}, but it had reached {reached}: its topic was deleted, "
            f"or files were removed. Restore them from a copy. Until then appends are refused, "
            f"since they would use offsets again",
            path=self.path,
            log_end_offset=end_number,
            witnessed_offset=reached,
        )

    def ended(self) -> SparkLogError:
        """Return the error for an append to a stripe that has ended; look at the metadata first."""
        try:
            self.check_stripes()
        except SparkLogError as error:
            return error
        return StripesChangedError(
            f"{self.path}: the stripe has ended: its topic gets another number of stripes, or has "
            f"got it; nothing was appended. Try again: it takes some seconds. If the process that "
            f"changes it was killed, run spark-log topics alter once more",
            topic=self.path,
        )

    def describe(self) -> StripeDescription:
        """Describe the stripe, by a listing.

        Raises:
            StorageError: the storage does not answer.
        """
        listing = self.list()
        behind = [file for _, file in listing.behind_home]
        oldest_us = min((file.modified_us for file in behind), default=listing.newest_us)
        return StripeDescription(
            stripe=self.stripe,
            path=self.path,
            end_number=max(listing.end_number, listing.home_number),
            home_number=listing.home_number,
            objects=len(behind),
            behind_bytes=sum(file.size_bytes for file in behind),
            behind_ms=(listing.newest_us - oldest_us) // 1000,
            files=len(listing.files),
            size_bytes=sum(file.size_bytes for _, file in listing.files),
        )

    def open(self, number: int, data: pa.Buffer | None = None) -> StripeObject | None:
        """Open an object; return None if the stripe has none of this number.

        Args:
            number: the object's number.
            data: the object's bytes, if this process has put it; None reads the file.

        Raises:
            CorruptRecordError: the object is damaged.
            StorageError: the storage does not answer.
        """
        try:
            return StripeObject(
                self.store,
                self.file_path(number),
                number,
                topic_id=self.topic_id,
                stripe=self.stripe,
                data=data,
            )
        except NotFoundError:
            return None

    def read_home(self, number: int) -> StripeState:
        """Return the state in a home marker.

        Raises:
            NotFoundError: the marker does not exist.
            CorruptRecordError: the marker is damaged.
            StorageError: the storage does not answer.
        """
        path = self.file_path(number, is_home=True)
        data = self.store.open_buffer(path)
        try:
            return decode_home(data, number, topic_id=self.topic_id, stripe=self.stripe)
        except ValueError as error:
            raise CorruptRecordError(
                f"{path}: {error}. Restore the home marker from a copy", path=path
            ) from None
