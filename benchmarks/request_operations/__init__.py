"""The operations whose requests are counted, and how many each may send: a module for each client.

Each is a context manager: it prepares what the operation needs, and yields the operation. What it
sends before and after is not counted. Spark's are in `spark`, which nothing here imports.
"""

from benchmarks.request_operations import admin, consumer, groups, maintenance, producer
from benchmarks.request_operations.operation import Operation, Root

__all__ = ["OPERATIONS", "SUBJECTS", "Operation", "Root"]

SUBJECTS = {
    "Producer": producer.OPERATIONS,
    "Consumer": consumer.OPERATIONS,
    "Groups": groups.OPERATIONS,
    "Admin": admin.OPERATIONS,
    "Cleaner, controller, mirror": maintenance.OPERATIONS,
}

OPERATIONS = tuple(each for operations in SUBJECTS.values() for each in operations)
