"""Serve a root to Kafka's clients: gateways in Spark's executors.

    spark-submit jobs/serve.py --root /data/log --gateways 2
    spark-submit jobs/serve.py --root /data/log --gateways 1 --max-gateways 8
    spark-submit jobs/serve.py --root /data/log --gateways 8 --listen 0.0.0.0:9092 \\
        --gateway-config gateway.properties

The program is `spark_log/jobs/serve.py`.
"""

from spark_log.cli import run
from spark_log.jobs.serve import main

if __name__ == "__main__":
    run(main)
