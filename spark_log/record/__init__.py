"""Records at rest: the Arrow schema, the batch header, its checksum, and Kafka's key hash."""
