"""Storage: the port (`Store`) and its backends; the only place that touches files."""

from spark_log.storage.known_names import is_known, valid_ms_of
from spark_log.storage.reserve import with_reserve
from spark_log.storage.storage_time import check_clock_skew, newest_modified_us, storage_time_us
from spark_log.storage.store import FileInfo, StagedFile, StorageOptions, Store, open_store

__all__ = [
    "FileInfo",
    "StagedFile",
    "StorageOptions",
    "Store",
    "check_clock_skew",
    "is_known",
    "newest_modified_us",
    "open_store",
    "storage_time_us",
    "valid_ms_of",
    "with_reserve",
]
