"""Options of ``format("spark_log")``: parsed and checked; and those written for Kafka."""
