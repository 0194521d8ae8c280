from .aio_producer import AIOProducer as AIOProducer
from .batch import RecordFuture as RecordFuture
from .batch import RecordRange as RecordRange
from .batch import TableFuture as TableFuture
from .interceptors import ProducerInterceptor as ProducerInterceptor
from .interceptors import ProducerRecord as ProducerRecord
from .producer import Producer as Producer
