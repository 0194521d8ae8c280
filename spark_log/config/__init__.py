"""Configuration: one table of keys, and the models that check what users set."""
