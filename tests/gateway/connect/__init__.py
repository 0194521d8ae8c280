"""Kafka Connect with a database: PostgreSQL, and Debezium in a distributed worker."""
