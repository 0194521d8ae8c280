"""The simulation of offsets that Kafka's clients commit with transactions, through gateways."""
