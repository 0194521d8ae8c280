"""Storage: the port (`Store`) and its backends; the only place that touches files."""

from spark_log.storage.store import FileInfo, StagedFile, StorageOptions, Store, open_store

__all__ = ["FileInfo", "StagedFile", "StorageOptions", "Store", "open_store"]
