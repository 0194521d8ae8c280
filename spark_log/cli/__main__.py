"""``python -m spark_log.cli``: the same as ``spark-log``."""

from spark_log.cli.main import main

main()
