"""Topics in the metadata log: names, creation, deletion, and offsets of partitions."""
