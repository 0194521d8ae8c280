"""Clean a root: retention, merging, compaction, deletion and transactions.

    spark-submit jobs/clean.py --root /data/log
    spark-submit jobs/clean.py flights --root /data/log --dry-run --json

The program is `spark_log/jobs/clean.py`.
"""

from spark_log.cli import run
from spark_log.jobs.clean import main

if __name__ == "__main__":
    run(main)
