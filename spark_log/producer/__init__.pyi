from .aio_producer import AIOProducer as AIOProducer
from .interceptors import ProducerInterceptor as ProducerInterceptor
from .interceptors import ProducerRecord as ProducerRecord
from .producer import Producer as Producer
from .record_future import RecordFuture as RecordFuture
from .table_sender import RecordRange as RecordRange
from .table_sender import TableFuture as TableFuture
