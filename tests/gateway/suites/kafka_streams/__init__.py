"""Kafka Streams: the programs of its own system tests, and results that are computed again here."""
