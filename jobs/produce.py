"""Write files or a Delta table to a topic, one record per row.

    spark-submit jobs/produce.py flights.csv --root /data/log --topic flights \\
        --key carrier --timestamp time_hour

The program is `spark_log/jobs/produce.py`.
"""

from spark_log.cli import run
from spark_log.jobs.produce import main

if __name__ == "__main__":
    run(main)
