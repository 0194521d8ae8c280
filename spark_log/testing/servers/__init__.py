"""Servers for tests, on 127.0.0.1: S3, a proxy that injects faults, a Spark cluster."""
