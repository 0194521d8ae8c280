"""Simulation of a compacted log."""
