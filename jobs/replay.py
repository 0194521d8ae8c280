"""Read a range of a topic again, by offset or by event time.

    spark-submit jobs/replay.py flights --root /data/log --from-time 2013-07-04 --to-time 2013-07-05
    spark-submit jobs/replay.py flights --root /data/log --partition 2 --from-offset 5 --to-offset 9

The program is `spark_log/jobs/replay.py`.
"""

from spark_log.cli import run
from spark_log.jobs.replay import main

if __name__ == "__main__":
    run(main)
