"""Apply a function to records of a log, and write the results to a Delta table or a topic.

    spark-submit jobs/reprocess.py flights --root /data/log --transform delays:by_carrier \\
        --to delta --path /data/delays --name delays-2013

The program is `spark_log/jobs/reprocess.py`.
"""

from spark_log.cli import run
from spark_log.jobs.reprocess import main

if __name__ == "__main__":
    run(main)
