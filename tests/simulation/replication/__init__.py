"""Simulation of a replicated partition: brokers fail, lag, come back old, and are destroyed."""
