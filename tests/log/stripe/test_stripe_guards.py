"""A stripe whose files were removed is not begun again, and takes the entries of its partitions."""

import pytest

from spark_log.errors import LogEndOffsetMismatchError, LogTruncatedError, StorageUnavailableError
from tests.log.stripe.support import STRIPE, Process, batch, shown

DELAY_MS = 60_000


@pytest.fixture
def open_guarded(memory_store, clock):
    """Open a process whose stripe has an existence marker."""
    return lambda **guards: Process(
        memory_store, clock, guards={"has_existence_marker": True, **guards}
    )


def remove_files(store, after=""):
    for file in list(store.list(STRIPE)):
        if file.name > after:
            store.delete(file.path)


class TestAStripeWhoseFilesWereRemoved:
    def test_is_not_begun_again_by_a_new_process(self, open_guarded, memory_store):
        open_guarded().append(batch(0))
        remove_files(memory_store)
        fresh = open_guarded()
        assert fresh.append(batch(0, 1)) == [LogTruncatedError]
        with pytest.raises(LogTruncatedError, match="is empty, but it had reached 1"):
            fresh.values(0)
        with pytest.raises(LogTruncatedError):
            fresh.take_home()

    def test_is_not_begun_again_after_a_lost_answer_to_its_first_put(
        self, open_guarded, memory_store, clock
    ):
        """The marker is made by whoever finds out that the first object is there."""
        first = open_guarded()
        first.append(batch(0))
        remove_files(memory_store)
        clock.advance_ms(DELAY_MS)
        assert first.append(batch(0, 1)) == [LogTruncatedError]

    def test_is_not_continued_by_a_process_that_knew_more(self, open_guarded, memory_store, clock):
        process = open_guarded()
        for number in range(3):
            process.append(batch(0, number))
        assert len(process.values(0)) == 3
        remove_files(memory_store, f"{1:020d}")
        clock.advance_ms(DELAY_MS)
        assert process.append(batch(0, 3)) == [LogTruncatedError]
        with pytest.raises(LogTruncatedError, match="ends at object 1, but it had reached 3"):
            process.values(0)

    def test_is_no_stripe_of_which_a_listing_lacks_the_first_object(
        self, open_guarded, memory_store, clock, store
    ):
        """The marker may appear between the listing and the look for it."""
        late = Process(store, clock, guards={"has_existence_marker": True})

        def append_behind(path, call):
            files = list(call())
            open_guarded().append(batch(0))
            return iter(files)

        store.once("list", append_behind)
        assert late.append(batch(0, 1)) == [(1, 1)]


def test_an_emptied_root_gets_no_first_object(open_guarded, memory_store):
    def fail():
        raise StorageUnavailableError("the root is empty")

    assert open_guarded(check_root=fail).append(batch(0)) == [StorageUnavailableError]
    assert list(memory_store.list(STRIPE)) == []
    open_guarded().append(batch(0))
    assert open_guarded(check_root=fail).append(batch(0, 1)) == [(1, 1)]


def test_a_partition_of_another_stripe_is_refused(memory_store, clock):
    process = Process(memory_store, clock, stripes=2)
    with pytest.raises(ValueError, match="partition 3 is in stripe 1 of 2"):
        process.group.append([batch(2), batch(3)])
    assert shown(process.group.append([batch(2)])[0]) == (0, 0)


class TestAnEntryThatRequiresAnOffset:
    def test_is_decided_by_the_newest_state(self, process, other):
        process.append(batch(0))
        other.append(batch(0, 1))
        assert process.append(batch(0, 2, expected_end_offset=2)) == [(2, 2)]
        assert process.append(batch(0, 3, expected_end_offset=2)) == [LogEndOffsetMismatchError]
        assert process.append(batch(0, 3, expected_end_offset=9)) == [LogEndOffsetMismatchError]

    def test_is_the_first_of_its_partition_in_an_object(self, process):
        assert process.append(
            batch(0, expected_end_offset=0),
            batch(0, 1, expected_end_offset=0),
            batch(0, 2, expected_end_offset=1),
            batch(1, 3, expected_end_offset=0),
        ) == [(0, 0), LogEndOffsetMismatchError, (1, 1), (0, 0)]

    def test_follows_those_that_require_none(self, process):
        assert process.append(batch(0), batch(0, 1, expected_end_offset=1)) == [(0, 0), (1, 1)]

    def test_is_not_overtaken_by_the_next_batch_of_its_producer(self, process):
        assert process.append(
            batch(0),
            batch(0, producer_id=7, expected_end_offset=1),
            batch(0, 1, producer_id=7),
        ) == [(0, 0), (1, 1), (2, 2)]
