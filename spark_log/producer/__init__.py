"""Sending records: `Producer`, what it returns, and what may come between it and the log."""

from spark_log.producer.interceptors import ProducerInterceptor, ProducerRecord
from spark_log.producer.producer import Producer
from spark_log.producer.record_future import RecordFuture

__all__ = ["Producer", "ProducerInterceptor", "ProducerRecord", "RecordFuture"]
