from .aio_consumer import AIOConsumer as AIOConsumer
from .consumer import Consumer as Consumer
from .consumer_records import TABLE_SCHEMA as TABLE_SCHEMA
from .fetch import Resolve as Resolve
from .interceptors import ConsumerInterceptor as ConsumerInterceptor
from .offset_reset import start_offset as start_offset
from .rebalance_listener import ConsumerRebalanceListener as ConsumerRebalanceListener
from .transaction_resolver import resolver as resolver
