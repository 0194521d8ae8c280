"""A process that changes a topic's number of stripes until it is killed."""

import random

from spark_log.cluster import change_stripes, open_cluster
from spark_log.errors import SparkLogError

TOPIC = "t"


def change_until_stopped(role, stop):
    """Change; ``role`` is the root's address and a seed."""
    url, storage_options, seed = role
    choose = random.Random(seed)
    cluster = open_cluster(url, storage_options)
    while not stop.poll():
        topic = cluster.topic(TOPIC)
        count = choose.choice((0, 1, 2, 3)) if topic.moving_to is None else topic.moving_to
        try:
            change_stripes(cluster, TOPIC, count)
        except SparkLogError:  # another process is about it
            stop.poll(0.05)
