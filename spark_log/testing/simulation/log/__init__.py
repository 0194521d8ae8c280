"""Simulation of one partition log: writers, readers and mergers on storage with faults."""
