"""Pass new records of topics through a function into another topic, exactly once.

    spark-submit jobs/transform.py flights --root /data/log --group delays --to delays \\
        --transform delays:late

The program is `spark_log/jobs/transform.py`.
"""

from spark_log.cli import run
from spark_log.jobs.transform import main

if __name__ == "__main__":
    run(main)
