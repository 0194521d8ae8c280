"""Read new records of topics as a consumer group, write them, and commit the offsets.

    spark-submit jobs/consume.py flights --root /data/log --group dashboard --to parquet --path out

The program is `spark_log/jobs/consume.py`.
"""

from spark_log.cli import run
from spark_log.jobs.consume import main

if __name__ == "__main__":
    run(main)
