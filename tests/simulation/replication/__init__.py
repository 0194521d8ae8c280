"""Simulation of a replicated partition: brokers fail, lag, return, and lose their disks."""
