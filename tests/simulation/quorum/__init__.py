"""Simulation of a quorum of roots, which an operator wipes and replaces."""
