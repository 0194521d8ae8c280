"""A simulation of a topic whose number of stripes changes while it is used."""
