"""`batch_timeout_ms`: the default timeout of a transaction of Spark."""

import pytest

from spark_log.config import ClusterConfig
from spark_log.transaction import batch_timeout_ms


@pytest.mark.parametrize(
    ("most_ms", "given_ms", "timeout_ms"),
    [
        (900_000, None, 900_000),
        (1_000_000, None, 900_000),
        (60_000, None, 60_000),
        (60_000, 1234, 1234),
        (60_000, 60_001, 60_001),  # for the coordinator to refuse
    ],
)
def test_is_what_was_given_or_as_long_as_the_cluster_allows(most_ms, given_ms, timeout_ms):
    config = ClusterConfig(transaction_max_timeout_ms=most_ms)
    assert batch_timeout_ms(config, given_ms) == timeout_ms
