"""Kafka Connect and MirrorMaker 2 against gateways: Kafka's programs, with tests of ours."""
