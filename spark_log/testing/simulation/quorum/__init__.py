"""Simulation of a quorum of roots: proposers, readers, and an operator who wipes and replaces roots."""
