"""What our tests check things with, shipped so that others can check theirs.

`store_suite.StoreSuite` and `store_stateful.StoreStateMachine` test a storage backend; they need
pytest and hypothesis (``pip install 'spark-log[dev]'``).
"""
