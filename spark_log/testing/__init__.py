"""Test tools of spark-log, shipped so that others can test their own backends with them.

`store_suite.StoreSuite` and `store_stateful.StoreStateMachine` test a storage backend; they need
pytest and hypothesis (``pip install 'spark-log[dev]'``). `create_race` lets processes race for the
names in a store. `power_cut` simulates power cuts of a local root. `history` checks the recorded
sends, polls and transactions of clients. `spark` and `servers` run a Spark session, a Spark
cluster, an S3 server and a faulty proxy.
"""
