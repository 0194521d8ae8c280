"""Simulation of a consumer group."""
