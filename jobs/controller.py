"""Watch the brokers and replicas of a root, and bring replicas back by Spark tasks.

    spark-submit jobs/controller.py --root /data/log
    spark-submit jobs/controller.py --root /data/log --once --json

The program is `spark_log/jobs/controller.py`.
"""

from spark_log.cli import run
from spark_log.jobs.controller import main

if __name__ == "__main__":
    run(main)
