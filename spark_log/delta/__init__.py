"""The log of a Delta table, committed by conditional appends; its data files and cleanup."""
