"""The simulation of one group of the consumer protocol (KIP-848) that gateways coordinate."""
