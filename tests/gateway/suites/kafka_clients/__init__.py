"""Kafka's integration tests of its clients, on gateways in the place of the brokers they start.

`suite` runs them. ``java/`` has what stands in the place of Kafka's own classes: a cluster that is
made of gateways, and a program that runs JUnit and prints the result of each test.
`gateway_host` starts the gateways for it.
"""
