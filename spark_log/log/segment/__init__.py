"""One segment of a log: its file, its reader and writer, and its offset and time index."""
