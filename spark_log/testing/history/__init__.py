"""A history checker: compares the recorded operations of clients with the promises of a log.

Clients note each operation (`Operation`: sends, polls, transactions, with their outcome) in a file
of JSON lines (`HistoryWriter`). `read_history` reads the files, `check_history` finds the anomalies
and names them as Jepsen's checker for Kafka does (`Anomaly` has the list). An operation of unknown
outcome may have taken effect or not; neither is an anomaly. ``python -m
spark_log.testing.history FILE...`` reads and checks files from a shell.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
