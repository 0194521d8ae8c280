"""The producer client: `Producer`, `AIOProducer`, their futures and interceptors."""

from spark_log.producer.interceptors import ProducerInterceptor, ProducerRecord
from spark_log.producer.producer import Producer
from spark_log.producer.record_future import RecordFuture

__all__ = ["Producer", "ProducerInterceptor", "ProducerRecord", "RecordFuture"]
