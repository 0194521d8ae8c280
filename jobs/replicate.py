"""Bring replicas that are not in sync back: after the loss and return of a root, or to move them.

    spark-submit jobs/replicate.py --root /data/log
    spark-submit jobs/replicate.py flights --root /data/log --throttle 50000000 --json

The program is `spark_log/jobs/replicate.py`.
"""

from spark_log.cli import run
from spark_log.jobs.replicate import main

if __name__ == "__main__":
    run(main)
