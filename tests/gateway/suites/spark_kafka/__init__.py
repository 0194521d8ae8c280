"""Spark's own connector for Kafka through gateways: its own tests, and comparisons of ours."""
