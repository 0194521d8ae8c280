"""A stripe on a disk and on an S3 server."""

import pytest

from spark_log.log.stripe import free
from spark_log.storage import open_store, storage_time_us
from spark_log.storage.local import LocalStore
from spark_log.util.clock import SYSTEM_CLOCK
from tests.log.stripe.support import STRIPE, Process, batch, expected, marker


@pytest.fixture(params=["disk", "s3"])
def stored(request, tmp_path):
    """A store with the files of this test."""
    if request.param == "disk":
        return LocalStore(str(tmp_path))
    server = request.getfixturevalue("s3_server")
    return open_store(f"{server.new_bucket()}/root", server.storage_options)


def test_it_is_appended_to_read_taken_home_and_freed(stored):
    first, second = (Process(stored, SYSTEM_CLOCK, flush_on_append=True) for _ in range(2))
    for number in range(3):
        each = second if number % 2 else first
        assert (
            each.append(batch(0, number), batch(1, number, producer_id=7), marker(2, 8, number + 1))
            == [(number, number)] * 3
        )
    assert second.values(0) == expected(0, 0, 3)
    assert second.take_home().number == 3
    assert first.values(1, committed=True) == expected(1, 0, 3, producer_id=7)
    assert first.append(batch(1, 2, producer_id=7)) == [(2, 2)]
    assert free(first.directory) == 0
    an_hour_later_us = storage_time_us(stored, STRIPE) + 3_600_000_000
    assert free(first.directory, now_us=an_hour_later_us) == 3
    assert first.values(0, 1) == second.values(0, 1) == expected(0, 1, 2)
