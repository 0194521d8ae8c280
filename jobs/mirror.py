"""Mirror topics of Kafka into a log, or topics of a log into Kafka, each partition by a Spark task.

    spark-submit jobs/mirror.py from-kafka --topics flights --root /data/log \\
        --bootstrap-server localhost:9092
    spark-submit jobs/mirror.py to-kafka --topics flights --root /data/log --json

The program is `spark_log/jobs/mirror.py`.
"""

from spark_log.cli import run
from spark_log.jobs.mirror import main

if __name__ == "__main__":
    run(main)
