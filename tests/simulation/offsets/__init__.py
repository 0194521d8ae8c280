"""Simulation of the table of committed offsets."""
