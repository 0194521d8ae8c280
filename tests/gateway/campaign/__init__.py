"""A campaign: gateways that are killed, stopped and moved, under clients of several kinds at once.

Producers, transactions, groups and readers of librdkafka, Java, kafka-python and of this package
work on the same topics while `FaultPlan` strikes gateways, clients, clocks and the S3 server, by a
seeded plan. `checks` compares what the clients noted with what is in the logs at the end. A run of
any length::

    python -m tests.gateway.campaign --minutes 5 --store s3 --gateways 3 --seed 7
"""
