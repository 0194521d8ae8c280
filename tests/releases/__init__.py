"""Roots that several releases use: written by an old one, or by two at the same time."""
