"""Benchmarks: what Spark Log costs beside Parquet and beside Kafka, on the machine they run on.
Each prints the ratios of one run and keeps them as JSON; no test asserts any of them."""
