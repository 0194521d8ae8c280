"""Records in a segment file: Arrow schema, batch header, checksums; and Kafka's key hash."""
