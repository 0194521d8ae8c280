"""A job that is a member of a consumer group.

- `group_job`: batch after batch until the end, or until a signal.
- `job_member`, `transactional_member`: the membership; offsets are committed alone, or in the
  transaction of the batch's output.
- `batch_processors`, `transform_processor`: what Spark does with a batch.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
