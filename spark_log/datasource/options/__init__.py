"""Options of ``format("spark_log")``: parsing, checks, and translation of options for Kafka."""
