"""Test tools of spark-log, shipped so that others can test their own backends with them.

`store_suite.StoreSuite` and `store_stateful.StoreStateMachine` test a storage backend; they need
pytest and hypothesis (``pip install 'spark-log[dev]'``). `history` checks the recorded sends, polls
and transactions of clients.
"""
