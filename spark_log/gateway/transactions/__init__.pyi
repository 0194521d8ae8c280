from .transactions import Transactions as Transactions
