from .producer_entry import NOT_LISTED_US as NOT_LISTED_US
from .producer_entry import EpochRun as EpochRun
from .producer_entry import ProducerEntry as ProducerEntry
from .producer_entry import SequenceRun as SequenceRun
from .producer_state import ProducerState as ProducerState
from .transaction_index import AbortedTransaction as AbortedTransaction
from .transaction_index import OpenTransaction as OpenTransaction
from .transaction_index import TransactionIndex as TransactionIndex
