"""Simulation of group commit: gateways append the batches of several clients by one put."""
