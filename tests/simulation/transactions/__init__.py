"""Simulation of transactions over several partitions, of producers and of jobs of many tasks."""
