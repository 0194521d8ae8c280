"""The operations whose requests are counted, with their budgets: a module for each client.

Each is a context manager: it makes the preparations, and yields the operation. Its requests before
and after the operation are not counted. Spark's operations are in `spark`, which this package does
not import.
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
