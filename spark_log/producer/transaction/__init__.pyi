from .transaction_manager import State as State
from .transaction_manager import TransactionManager as TransactionManager
from .transactional_identity import TransactionalIdentity as TransactionalIdentity
from .transactions import TransactionCall as TransactionCall
from .transactions import Transactions as Transactions
