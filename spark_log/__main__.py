"""``python -m spark_log``: the same as ``spark-log``."""

from spark_log.cli import main

main()
