"""Benchmarks of Spark Log against Kafka, Parquet and the bare storage, on the machine they run on.

Each module with a ``main`` is a benchmark; its docstring gives the command. Figures are printed,
and can be written to ``results/`` as JSON. No test depends on a figure.
"""
