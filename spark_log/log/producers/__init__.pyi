from .producer_state import NOT_LISTED_US as NOT_LISTED_US
from .producer_state import ProducerEntry as ProducerEntry
from .producer_state import ProducerState as ProducerState
from .producer_state import SequenceRun as SequenceRun
from .transaction_index import AbortedTransaction as AbortedTransaction
from .transaction_index import OpenTransaction as OpenTransaction
from .transaction_index import TransactionIndex as TransactionIndex
