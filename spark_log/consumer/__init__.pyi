from .aio_consumer import AIOConsumer as AIOConsumer
from .consumer import Consumer as Consumer
from .fetch import Resolve as Resolve
from .fetch import resolver as resolver
from .interceptors import ConsumerInterceptor as ConsumerInterceptor
from .position import start_offset as start_offset
from .rebalance_listener import ConsumerRebalanceListener as ConsumerRebalanceListener
from .record_factory import TABLE_SCHEMA as TABLE_SCHEMA
