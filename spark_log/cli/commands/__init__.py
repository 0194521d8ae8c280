"""The commands of ``spark-log``: one file for each group of commands."""
