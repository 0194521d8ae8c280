"""The storage port (`Store`) and its backends. Nothing outside of this package touches files."""

from spark_log.storage.factory import checked_root, open_store
from spark_log.storage.listing_validity import is_listing_valid, listing_validity_ms
from spark_log.storage.reserve import with_reserve
from spark_log.storage.storage_time import check_clock_skew, newest_modified_us, storage_time_us
from spark_log.storage.store import FileInfo, StagedFile, StorageOptions, Store

__all__ = [
    "FileInfo",
    "StagedFile",
    "StorageOptions",
    "Store",
    "check_clock_skew",
    "checked_root",
    "is_listing_valid",
    "listing_validity_ms",
    "newest_modified_us",
    "open_store",
    "storage_time_us",
    "with_reserve",
]
