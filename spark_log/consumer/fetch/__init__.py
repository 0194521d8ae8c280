"""Reading ahead for a consumer: the fetcher, its thread, and the buffer between them."""

from spark_log.consumer.fetch.completed_fetch import Fetch, FetchedRows
from spark_log.consumer.fetch.fetcher import Fetcher

__all__ = ["Fetch", "FetchedRows", "Fetcher"]
