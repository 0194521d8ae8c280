"""Simulation of one partition log: writers, readers and maintenance on storage with faults."""
