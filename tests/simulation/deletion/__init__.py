"""Simulation of topics that are deleted and created again."""
